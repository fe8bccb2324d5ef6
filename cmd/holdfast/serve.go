package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

type serveCommand struct {
	Data   string          `help:"Directory of the data, which is made if it is not there." env:"HOLDFAST_DATA" default:"holdfast-data" placeholder:"DIR"`
	Engine string          `help:"Engine and directory instead of --data: pebble:DIR?sync-every=500ms" env:"HOLDFAST_ENGINE" placeholder:"URL"`
	Listen string          `help:"Address to listen on." env:"HOLDFAST_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Token  string          `help:"Token of the default namespace, if it has none yet. Default: a new one, which is printed." env:"HOLDFAST_TOKEN" placeholder:"TOKEN"`
	Level  string          `help:"What writes survive that name nothing else: memory, process, power." env:"HOLDFAST_LEVEL" default:"power" enum:"memory,process,power" placeholder:"LEVEL"`
	Config kong.ConfigFlag `help:"Settings in YAML, by the names of the flags. Flags and environment go before it." env:"HOLDFAST_CONFIG" placeholder:"FILE"`

	TLSCert  string `name:"tls-cert" help:"Certificate chain in PEM. It is read again on SIGHUP and when it changes." env:"HOLDFAST_TLS_CERT" placeholder:"FILE"`
	TLSKey   string `name:"tls-key" help:"Its key in PEM." env:"HOLDFAST_TLS_KEY" placeholder:"FILE"`
	Insecure bool   `help:"Listen without TLS on addresses that other machines reach." env:"HOLDFAST_INSECURE"`

	MaxBody        int64         `help:"Bytes that the body of a request may have." env:"HOLDFAST_MAX_BODY" default:"67108864" placeholder:"BYTES"`
	MaxConnections int           `help:"Connections at once; more wait." env:"HOLDFAST_MAX_CONNECTIONS" default:"10000" placeholder:"N"`
	Rate           float64       `help:"Requests a second of one token; 0 for any number." env:"HOLDFAST_RATE" default:"0" placeholder:"N"`
	Burst          int           `help:"Requests of one token at once. Default: --rate." env:"HOLDFAST_BURST" default:"0" placeholder:"N"`
	BodyTimeout    time.Duration `help:"How long the body of a request may take." env:"HOLDFAST_BODY_TIMEOUT" default:"1m" placeholder:"TIME"`
	WriteTimeout   time.Duration `help:"How long a client may take to read a part of an answer." env:"HOLDFAST_WRITE_TIMEOUT" default:"30s" placeholder:"TIME"`
	IdleTimeout    time.Duration `help:"How long a connection may be idle." env:"HOLDFAST_IDLE_TIMEOUT" default:"2m" placeholder:"TIME"`
	StopTimeout    time.Duration `help:"How long requests may take to end once the server stops." env:"HOLDFAST_STOP_TIMEOUT" default:"30s" placeholder:"TIME"`

	LogLevel  string `help:"debug (every request), info, warn, error." env:"HOLDFAST_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL"`
	LogFormat string `help:"json, text, or auto: text on a terminal." env:"HOLDFAST_LOG_FORMAT" default:"auto" enum:"auto,json,text" placeholder:"FORMAT"`

	PrintConfig bool `help:"Print the settings as YAML, without the token, and exit."`
}

func (c *serveCommand) run() int {
	ctx, stop := interruptible()
	defer stop()
	return fail(c.serve(ctx, os.Stdout, os.Stderr))
}

// serve runs until ctx ends.
func (c *serveCommand) serve(ctx context.Context, out, log *os.File) (err error) {
	logger := slog.New(slog.NewJSONHandler(log, nil))
	name, dir, o, err := c.engine()
	if err != nil {
		return err
	}
	o.Logger = logger
	level, err := holdfast.ParseLevel(c.Level)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	engine, err := all.Open(name, dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	d, err := data.Open(engine, data.Options{Level: level, Logger: logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := c.firstToken(ctx, out, d); err != nil {
		return err
	}
	s, err := server.New(d, server.Options{Version: readVersion().Version, Logger: logger})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening on http://%s\n", listener.Addr())
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.Background(), c.StopTimeout)
	defer cancel()
	return s.Stop(drain)
}

func (c *serveCommand) engine() (name, dir string, o holdfast.Options, err error) {
	if c.Engine != "" {
		return all.ParseURL(c.Engine)
	}
	return all.Default, c.Data, o, nil
}

func (c *serveCommand) firstToken(ctx context.Context, out io.Writer, d *data.Data) error {
	info, err := d.Messages().Info(ctx, message.Default)
	if err != nil {
		return err
	}
	if info.TokenSHA256 != "" {
		return nil
	}
	token := cmp.Or(c.Token, auth.NewNamespaceSecret(message.Default))
	if err := d.Messages().SetToken(ctx, message.Default, token); err != nil {
		return err
	}
	fmt.Fprintf(out, "token %s\n", token)
	return nil
}
