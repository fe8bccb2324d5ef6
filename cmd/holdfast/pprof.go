package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// servePprof serves profiles of the process, if that was asked for, until stop is called. They ask for no token, so
// they are served to this machine only, and the command line, which may have a token, is not among them.
func (c *serveCommand) servePprof(logger *slog.Logger) (stop func(), err error) {
	if c.Pprof == "" {
		return func() {}, nil
	}
	address, err := net.ResolveTCPAddr("tcp", c.Pprof)
	if err != nil {
		return nil, c.bad("pprof", err.Error(), "write it as 127.0.0.1:6060")
	}
	if !address.IP.IsLoopback() {
		return nil, c.bad("pprof", fmt.Sprintf("everybody who reaches %s could profile the server", c.Pprof),
			"name an address of 127.0.0.1, and reach it over ssh -L")
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return nil, c.bad("pprof", err.Error(), "")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.Handle("/debug/pprof/cmdline", http.NotFoundHandler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(listener) }()
	logger.Info("serving profiles", "address", listener.Addr().String())

	return func() { _ = server.Close() }, nil
}
