package contender

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/internal/child"
)

// ServerArgument is the first argument of this executable where it is the server of a peer, see [Serve].
const ServerArgument = "peer-server"

const (
	natsPatience   = 2 * time.Minute // bounds the start of a server, which reads its files, and its end
	natsStop       = "stop"          // subject of the message that ends the server
	natsMaxPayload = 8 << 20         // bytes of a message, the most that the server's authors recommend
)

// serverRequest is what a server is told: one of these.
type serverRequest struct {
	NATS  *natsRequest
	Floor *floorRequest
}

// starter starts a process by its command line, and hands it a request, as [child.Start].
type starter = func(command []string, request any) (*child.Process, error)

// startServer starts a server.
func startServer(q serverRequest, start starter) (*child.Process, error) {
	for _, arg := range os.Args {
		if arg == ServerArgument { // else such processes would start each other without end
			return nil, errors.New("this is the process of a server: its main function must call contender.Serve")
		}
	}
	command, err := child.Command(nil, ServerArgument)
	if err != nil {
		return nil, err
	}

	return start(command, q)
}

// natsRequest is what the server is told.
type natsRequest struct {
	Dir   string // where it makes a directory of its own
	Token string // without which it takes no client: others on this machine can reach its port
	Sync  bool   // sync_interval: always; else the default, two minutes
	// Name is the server's among those of a cluster; empty if it is alone. Peers are where they reach each other, of which
	// Peer is its own.
	Name  string
	Peer  string
	Peers []string
}

// options are the server's. Its files are in dir.
func (q natsRequest) options(dir string) *server.Options {
	o := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, Authorization: q.Token, NoLog: true, NoSigs: true,
		MaxPayload: natsMaxPayload, JetStream: true, StoreDir: dir, SyncAlways: q.Sync,
	}
	if q.Name == "" {
		return o
	}
	o.ServerName = q.Name
	own := &url.URL{Host: q.Peer}
	o.Host = own.Hostname()
	o.Cluster = server.ClusterOpts{Name: "nodes", Host: o.Host, Username: natsRouteUser, Password: q.Token}
	o.Cluster.Port, _ = strconv.Atoi(own.Port()) // we made it
	for _, peer := range q.Peers {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: peer,
			User: url.UserPassword(natsRouteUser, q.Token)})
	}

	return o
}

const natsRouteUser = "node"

// natsReply is what it answers, once.
type natsReply struct {
	URL   string `json:",omitempty"`
	Error string `json:",omitempty"`
}

// Serve is the server of a peer: what a process of this executable runs whose first argument is [ServerArgument]. It
// returns the exit status. The server ends with the process that started it.
func Serve(stdin io.Reader, stdout io.Writer) int {
	var q serverRequest
	err := child.Serve("bench or crash", stdin, &q)
	switch {
	case err != nil:
	case q.Floor != nil:
		err = serveFloor(*q.Floor)
	case q.NATS != nil:
		return serveNATS(*q.NATS, stdout)
	default:
		err = errors.New("it is told of no server")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// serveNATS is Serve for NATS.
func serveNATS(q natsRequest, stdout io.Writer) int {
	s, release, err := startNATS(q)
	reply := natsReply{}
	if err != nil {
		reply.Error = err.Error()
	} else {
		reply.URL = s.ClientURL()
	}
	if err := json.NewEncoder(stdout).Encode(reply); err != nil || reply.Error != "" {
		return 1
	}
	s.WaitForShutdown()
	if err := release(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}

	return 0
}

// startNATS starts the server in this process. release is called when it has ended.
func startNATS(q natsRequest) (_ *server.Server, release func() error, err error) {
	// JetStream does not lock its files, and the server of a process that was killed may still be about to end.
	var h *datadir.Handle
	for deadline := time.Now().Add(natsPatience / 4); ; time.Sleep(5 * time.Millisecond) {
		h, err = datadir.Open(q.Dir, datadir.Spec{Engine: NATS, Format: 1})
		if err == nil {
			break
		}
		if !errors.Is(err, holdfast.ErrLocked) || time.Now().After(deadline) {
			return nil, nil, err
		}
	}
	s, err := server.NewServer(q.options(h.Dir))
	if err == nil {
		go s.Start()
		if !s.ReadyForConnections(natsPatience) {
			s.Shutdown()
			err = fmt.Errorf("the server is not ready after %v", natsPatience)
		}
	}
	if err == nil && !s.JetStreamEnabled() {
		s.Shutdown()
		err = errors.New("the server has no JetStream: its files are damaged, or there is no room")
	}
	if err == nil {
		err = stopWhenTold(s, q)
	}
	if err == nil {
		err = h.Made()
	}
	if err != nil {
		return nil, nil, errors.Join(err, h.Close())
	}

	return s, h.Close, nil
}

// stopWhenTold ends the server in good order when a client tells it to.
func stopWhenTold(s *server.Server, q natsRequest) error {
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.Token(q.Token))
	if err != nil {
		return err
	}
	if _, err = conn.Subscribe(natsStop+q.Name, func(*nats.Msg) { s.Shutdown() }); err == nil {
		err = conn.Flush()
	}

	return err
}

// natsServer is a server that runs as a child.
type natsServer struct {
	name, url, token string
	process          *child.Process
	ended            chan struct{} // closed when it has ended
	err              error         // why, from then on
}

// startNATSNodes starts that many servers of a cluster on files below dir, at once: they wait for each other.
func startNATSNodes(dir string, n int) ([]*natsServer, error) {
	peers, err := freeAddresses(n)
	if err != nil {
		return nil, err
	}
	nodes, errs := make([]*natsServer, n), make([]error, n)
	token := rand.Text()
	var all sync.WaitGroup
	for i, peer := range peers {
		all.Go(func() {
			name := fmt.Sprint("node", i+1)
			nodes[i], errs[i] = startNATSChild(natsRequest{Dir: filepath.Join(dir, name), Token: token, Sync: true, Name: name,
				Peer: peer, Peers: peers}, child.Start)
		})
	}
	all.Wait()
	nodes = slices.DeleteFunc(nodes, func(s *natsServer) bool { return s == nil })
	if err := errors.Join(errs...); err != nil {
		killNATS(nodes)
		return nil, err
	}

	return nodes, nil
}

// freeAddresses returns addresses of loopback that are free now.
func freeAddresses(n int) (list []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}

	return list, nil
}

// killNATS ends servers at once.
func killNATS(nodes []*natsServer) {
	for _, s := range nodes {
		s.kill()
		s.process.CloseInput()
	}
}

// startNATSChild starts a server by start.
func startNATSChild(q natsRequest, start starter) (*natsServer, error) {
	s := &natsServer{name: q.Name, token: q.Token, ended: make(chan struct{})}
	var err error
	if s.process, err = startServer(serverRequest{NATS: &q}, start); err != nil {
		return nil, err
	}

	slow := time.AfterFunc(natsPatience*3, s.process.Kill)
	defer slow.Stop()
	var reply natsReply
	err = json.NewDecoder(s.process.Out).Decode(&reply)
	switch {
	case err != nil:
		err = fmt.Errorf("the server does not answer: %w", err)
	case reply.Error != "":
		err = errors.New(reply.Error)
	}

	s.url = reply.URL
	go func() {
		_, _ = io.Copy(io.Discard, s.process.Out)
		_, s.err = s.process.Wait()
		if s.err == nil {
			s.err = errors.New("the server has ended")
		}
		close(s.ended)
	}()
	if err != nil {
		s.kill()
		return nil, err
	}

	return s, nil
}

// wait waits for the end of a server that was told to stop.
func (s *natsServer) wait() error {
	defer s.process.CloseInput()

	select {
	case <-s.ended:
		return nil
	case <-time.After(natsPatience):
		s.kill()
		return fmt.Errorf("it did not end within %v, and was killed", natsPatience)
	}
}

// kill ends the server at once, as a crash does, and returns when it is gone.
func (s *natsServer) kill() {
	s.process.Kill()
	<-s.ended
}
