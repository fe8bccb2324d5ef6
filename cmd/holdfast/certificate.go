package main

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// certificateEvery is how often it is looked at whether the files of a certificate have changed.
const certificateEvery = 5 * time.Second

// certificate is what a server shows to TLS clients. Its files may be replaced.
type certificate struct {
	chain, key string // files
	logger     *slog.Logger
	seen       [2]os.FileInfo // of the files, when they were last read; used by one goroutine
	now        atomic.Pointer[tls.Certificate]
}

func loadCertificate(chain, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{chain: chain, key: key, logger: logger}
	return c, c.load()
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil }

// load reads the files. What was there before stays if they cannot be used.
func (c *certificate) load() error {
	c.seen = c.look()
	pair, err := tls.LoadX509KeyPair(c.chain, c.key)
	if err != nil {
		return err
	}
	c.now.Store(&pair)

	return nil
}

func (c *certificate) look() (seen [2]os.FileInfo) {
	for i, name := range []string{c.chain, c.key} {
		seen[i], _ = os.Stat(name) // nil if it is not there: load says so
	}

	return seen
}

// check reads the files again, if they have changed or always. c may be nil.
func (c *certificate) check(always bool) {
	if c == nil {
		return
	}

	changed := always
	for i, now := range c.look() {
		was := c.seen[i]
		changed = changed || (now == nil) != (was == nil) ||
			now != nil && (!os.SameFile(now, was) || !now.ModTime().Equal(was.ModTime()) || now.Size() != was.Size())
	}
	if !changed {
		return
	}
	if err := c.load(); err != nil {
		c.logger.Error("the certificate was not read again, the old one stays", "error", err.Error())
		return
	}
	leaf := c.now.Load().Leaf
	c.logger.Info("the certificate was read again", "serial", leaf.SerialNumber.String(), "until", leaf.NotAfter)
}
