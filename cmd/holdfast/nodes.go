package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/nodes"
	"github.com/holdfastdb/holdfast/server/nodes/onpostgres"
)

// leastPeerToken is how many characters a peer token has at least.
const leastPeerToken = 16

// maxClusters is how many clusters of PostgreSQL a server can have.
const maxClusters = 100

// serveNode serves as one of several processes, until ctx ends.
func (c *serveCommand) serveNode(ctx context.Context, address *net.TCPAddr, level holdfast.Level, care *upkeep) (
	err error) {
	token, err := c.peerToken()
	if err != nil {
		return err
	}
	if c.Spaces < 1 || c.Spaces > nodes.PerCluster {
		return c.bad("spaces", fmt.Sprintf("%d is not from 1 to %d", c.Spaces, nodes.PerCluster), "")
	}
	peers := &tls.Config{}
	if c.PeerCA != "" {
		text, err := os.ReadFile(c.PeerCA)
		if err != nil {
			return c.bad("peer-ca", err.Error(), "")
		}
		if peers.RootCAs = x509.NewCertPool(); !peers.RootCAs.AppendCertsFromPEM(text) {
			return c.bad("peer-ca", "it has no certificate", "name a file in PEM")
		}
	}
	addresses := strings.Fields(strings.Join(c.Engine, " ")) // the environment has them behind each other
	switch {
	case len(addresses) == 0:
		return c.bad("advertise", "several processes cannot serve one directory", "set --engine to postgres://...")
	case len(addresses) > maxClusters:
		return c.bad("engine", fmt.Sprintf("there are %d", len(addresses)), fmt.Sprintf("name at most %d", maxClusters))
	case c.Data != "":
		return c.bad("engine", "--data, or HOLDFAST_DATA, is set too", "set one of them")
	}
	for _, address := range addresses {
		switch name, _, _, err := all.ParseURL(address); {
		case err != nil:
			return fmt.Errorf("%s: %w", c.where("engine"), err)
		case !all.OnServer(name):
			return c.bad("advertise", "several processes cannot serve one directory", "set --engine to postgres://...")
		}
	}
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	self, err := c.self(listener.Addr().(*net.TCPAddr))
	if err != nil {
		return err
	}
	run := rand.Text()
	var clusters []nodes.Cluster
	for i, address := range addresses {
		_, dsn, o, err := all.ParseURL(address)
		if err != nil {
			return err
		}
		o.Logger = quiet(care.logger)
		joined, err := onpostgres.Join(dsn, o, postgres.Self{Address: self, Version: readVersion().Version,
			Protocol: nodes.Protocol, Cluster: i, Clusters: len(addresses), Run: run})
		if err != nil {
			return err
		}
		defer func() { _ = joined.Close() }() // it has left, or cannot be reached
		clusters = append(clusters, joined)
	}
	options, stopTracing, err := c.options(ctx, care)
	if err != nil {
		return err
	}
	defer stopTracing()
	n, err := nodes.New(clusters, nodes.Options{Self: self, PeerToken: token, Spaces: c.Spaces,
		Level: level, Server: options,
		Peers: nodes.Transport(peers), StopTimeout: c.StopTimeout, Logger: care.logger,
		Opened: func(ctx context.Context, d *data.Data) error {
			text, err := c.ownToken(ctx, d)
			if first, more, made := strings.Cut(text, "\n"); err == nil && made {
				p := newPage(os.Stdout)
				p.line("token\t%s", first)
				p.line("\t%s", more)
				err = p.end()
			}

			return err
		}})
	if err != nil {
		return err
	}
	p := newPage(os.Stdout)
	p.line("address\t%s", self)
	p.line("data\t%s, shared with other processes", engines(addresses).shown())
	if err := p.end(); err != nil {
		return err
	}

	served := make(chan error, 2)
	go func() {
		if err := n.Serve(listener); err != nil {
			served <- err
		}
	}()
	care.logger.Info("serving as one of several processes", "address", listener.Addr().String(), "advertise", self)
	running, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() {
		err := n.Run(running)
		ran <- err
		served <- err // also if it was not asked to end
	}()

	return care.run(ctx, served, c.StopTimeout, func(context.Context) error { return <-ran })
}

// peerToken returns the secret that processes share.
func (c *serveCommand) peerToken() (string, error) {
	token, where := os.Getenv("HOLDFAST_PEER_TOKEN"), "HOLDFAST_PEER_TOKEN"
	if c.PeerTokenFile != "" {
		text, err := os.ReadFile(c.PeerTokenFile)
		if err != nil {
			return "", c.bad("peer-token-file", err.Error(), "")
		}
		token, where = strings.TrimSpace(string(text)), c.PeerTokenFile
	}
	switch {
	case token == "":
		return "", c.bad("peer-token-file", "the processes need a secret by which they know each other",
			"write one into a file, or into HOLDFAST_PEER_TOKEN, the same for all: openssl rand -hex 32")
	case len(token) < leastPeerToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", c.bad("peer-token-file", fmt.Sprintf("what is in %s is too short, or cannot be in a header", where),
			fmt.Sprintf("use at least %d letters and digits: openssl rand -hex 32", leastPeerToken))
	}

	return token, nil
}

// self is the address that others are told.
func (c *serveCommand) self(at *net.TCPAddr) (string, error) {
	u, err := url.Parse(c.Advertise)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return "", c.bad("advertise", fmt.Sprintf("%.80q is no address of a process", c.Advertise),
			"write it as http://10.0.0.2:8080")
	}
	if (u.Scheme == "https") != (c.TLSCert != "") {
		return "", c.bad("advertise", u.Scheme+" is not what this process speaks", "https needs --tls-cert, and http none")
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		return "", c.bad("advertise", "others cannot reach "+u.Hostname(), "name this machine's address")
	}
	if u.Port() == "0" {
		u.Host = net.JoinHostPort(u.Hostname(), fmt.Sprint(at.Port))
	}
	u.Path = ""

	return u.String(), nil
}

type nodesCommand struct {
	place
}

// Help implements kong's interface for what follows the flags.
func (nodesCommand) Help() string {
	return `Each process says what it sees itself, so the command also works while nobody owns the data. A server ` +
		`that is one process has none to show.`
}

func (c *nodesCommand) run() int {
	return c.reading(func(s *session) error {
		if err := c.noDir("nodes"); err != nil {
			return err
		}
		n, err := s.client.Nodes(s.ctx)
		if err != nil {
			return err
		}
		if s.json {
			return s.document(n)
		}
		if len(n.Nodes) == 0 {
			_, err := fmt.Fprintln(s.out, "one process")
			return err
		}
		t := columns("process", "version", "spaces#", "state")
		for _, one := range n.Nodes {
			state := map[bool]string{true: "alive", false: "gives no sign of life"}[one.Alive]
			if absent := absentFrom(n, one); one.Alive && absent != "" {
				state += ", but not in cluster " + absent
			}
			if one.Address == n.Self {
				state += ", says this"
			}
			t.Row("", one.Address, one.Version, num(one.Spaces), state)
		}
		s.table(t)
		fmt.Fprintln(s.out)
		if len(n.Clusters) > 1 {
			t = columns("cluster#", "address", "spaces#", "processes#", "state")
			for _, one := range n.Clusters {
				t.Row("", num(one.Cluster), one.Address, num(one.Spaces), num(one.Alive), clusterState(one))
			}
			s.table(t)
			fmt.Fprintln(s.out)
		}
		t = columns("space#", "cluster#", "owner", "machine", "epoch#", "standbys", "behind#", "state")
		for _, one := range n.Spaces {
			state := ""
			if i := one.Cluster; i < len(n.Clusters) && isUnseen(n.Clusters[i]) {
				state = "as it was when its cluster was seen last"
			} else if one.StillMS > 0 {
				state = fmt.Sprintf("nothing heard for %v", api.Duration(one.StillMS).Round(time.Second/10))
			}
			standbys, lag := "", ""
			if one.StandbysNeeded > 0 {
				standbys = fmt.Sprintf("%d, %d needed", one.Standbys, one.StandbysNeeded)
				lag = size(one.StandbyLag)
			}
			t.Row("", num(one.Space), num(one.Cluster), cmp.Or(one.Owner, "nobody"), one.Host, num(one.Epoch), standbys, lag,
				state)
		}
		s.table(t)
		if age := api.Duration(n.SeenMS); age > unseen && len(n.Clusters) < 2 {
			fmt.Fprintf(s.out, "\nPostgreSQL was last seen %v ago\n", age.Round(time.Second))
		}

		return nil
	})
}

// unseen is from when on it is said that a cluster has not been seen.
const unseen = 5 * time.Second

func isUnseen(c api.Cluster) bool { return api.Duration(c.SeenMS) > unseen || c.Trouble != "" }

// absentFrom names the clusters in which a process that lives gives no sign of life.
func absentFrom(n api.Nodes, one api.Node) string {
	var list []string
	for _, c := range n.Clusters {
		if !isUnseen(c) && !slices.Contains(one.Clusters, c.Cluster) {
			list = append(list, fmt.Sprint(c.Cluster))
		}
	}

	return strings.Join(list, ", ")
}

// clusterState says what is wrong with a cluster.
func clusterState(c api.Cluster) string {
	switch age := api.Duration(c.SeenMS); {
	case age > unseen:
		return fmt.Sprintf("not seen for %v", age.Round(time.Second))
	case c.Trouble != "":
		return c.Trouble
	case c.Spaces == 0:
		return "not used before all processes have it"
	}

	return ""
}
