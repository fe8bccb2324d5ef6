package page_test

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/holdfastdb/holdfast/engine/mem"
	hserver "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestPageOfProcesses: a process that does not own the data shows who does.
func TestPageOfProcesses(t *testing.T) {
	s := &server{t: t, token: auth.NewNamespaceSecret(message.Default), http: httptest.NewUnstartedServer(nil)}
	_, s.http.URL = nodestest.Start(t, mem.New(), hserver.Options{Version: "test", Logger: slog.New(slog.DiscardHandler)},
		func(d *data.Data) error { return d.Tokens().SetOwn(t.Context(), message.Default, s.token) })
	b := open(t, s)
	b.Run(chromedp.Navigate(s.http.URL + "/"))
	b.signIn(s.token)
	b.goTo("#/engine")
	b.text("table[aria-label=Processes] tr", s.http.URL)
	b.text("table[aria-label=Processes] td", "alive, says this")
	b.text("table[aria-label=Spaces] td", "http://127.0.0.1:")
}
