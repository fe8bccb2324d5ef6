package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
)

// A power cut of a real machine is witnessed by another one. The victim does what a victim of kills does, kv at Power,
// and what it tells goes over the network. The witness keeps it in a directory: for each victim the history that it has
// judged, and what it has heard since, in the form in which it came. When the victim is back, it tells what is there.
//
// Where a victim's messages were still on their way when the power went, the witness knows of fewer acknowledgements
// than there were, never of more.
//
// Each connection begins with a line of JSON from the victim and one from the witness, its Spec.

// hello is what a victim says of itself.
type hello struct {
	ID     string // of the directory, given by the witness; empty in a new one
	Engine string
	Single bool // batches have one operation: the engine does not promise whole ones
	// Boot tells one start of the machine from another; empty if that is not known.
	Boot string
}

// known is what the witness keeps of a victim from one connection to the next.
type known struct {
	Engine  string
	Boot    string
	Gen     uint32
	Next    uint64 // the number of the next generation's first batch
	History *protocol.History
	// What was witnessed.
	Cuts, Ends, Acked, Lost int
}

// idName is the file of a victim's directory that holds its ID.
const idName = "WITNESSED"

// What a witness keeps of a victim.
func knownName(dir, id string) string  { return filepath.Join(dir, id+".json") }
func ledgerName(dir, id string) string { return filepath.Join(dir, id+".ledger") }

const witnessOp = console.Op("doctor witness")

// Witness listens at an address for victims of [Lab.BeWitnessed], until ctx ends, and keeps in dir, which it makes if
// it is not there, what they were told. It shows what each of them had after a crash. The error is ErrBroken if
// something that was acknowledged was lost.
//
// Who can reach the address can write to dir, and let the witness take memory: it is for a network of one's own.
func (l Lab) Witness(ctx context.Context, address, dir string, t console.Terminal) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return witnessOp.BadOption(err.Error(), "name an address of this machine, such as :7440, with --listen")
	}
	defer listener.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return witnessOp.BadOption(err.Error(), "name a directory for what is witnessed with --ledger")
	}
	w := &witness{dir: dir, screen: t.Screen(), connected: map[string]*session{}}
	w.say("listening at %s; the victim: holdfast doctor witness HOST:%d --dir DIR", listener.Addr(),
		listener.Addr().(*net.TCPAddr).Port)
	var group sync.WaitGroup

	// The end of the context closes the listener and all connections, and so ends what waits for them.
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()

	for {
		conn, err := listener.Accept()
		if err != nil {
			break
		}
		group.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := w.serve(conn); err != nil && ctx.Err() == nil {
				w.say("%s: %v", conn.RemoteAddr(), err)
			}
		})
	}
	group.Wait()
	if w.broken > 0 {
		return fmt.Errorf("%s: %w", console.Number(w.broken, "crash"), ErrBroken)
	}
	if ctx.Err() == nil {
		return fmt.Errorf("it cannot listen any more: %w", console.ErrIncomplete)
	}

	return nil
}

// witness serves victims. mu covers the screen, the connections and the count of broken claims.
type witness struct {
	dir       string
	mu        sync.Mutex
	screen    console.Screen
	connected map[string]*session // by ID
	broken    int
}

// session is a connection of a victim.
type session struct {
	conn net.Conn
	over chan struct{} // closed when nothing more of it is kept
}

// begin ends an older connection of the same victim: that of a machine whose power was cut is open still.
func (w *witness) begin(id string, conn net.Conn) (end func()) {
	s := &session{conn, make(chan struct{})}
	w.mu.Lock()

	// The older connection must have ended before its ledger is read: what it still hears belongs to it.
	old := w.connected[id]
	w.connected[id] = s
	w.mu.Unlock()
	if old != nil {
		old.conn.Close()
		<-old.over
	}

	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.connected[id] == s {
			delete(w.connected, id)
		}
		close(s.over)
	}
}

// say writes a line with the time to the witness's screen.
func (w *witness) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.screen.Wrapped(time.Now().Format(time.TimeOnly)+" ", fmt.Sprintf(format, args...))
}

// serve is one connection of a victim.
func (w *witness) serve(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 64<<10)
	var h hello
	if err := readLine(in, &h); err != nil {
		return err
	}

	// A new directory gets a name. One that comes back is judged before it works on.
	isNew := h.ID == ""
	if isNew {
		h.ID = fmt.Sprintf("%016x", rand.Uint64())
	}
	defer w.begin(h.ID, conn)()
	k := &known{Engine: h.Engine, Next: 1, History: &protocol.History{
		Seed: rand.Uint64(), Single: h.Single, Survives: holdfast.Power, Level: holdfast.Power}}
	if !isNew {
		if err := w.load(h.ID, k); err != nil {
			return err
		}
	}

	if k.Engine != h.Engine {
		return fmt.Errorf("%s was begun with %s, and comes with %s", h.ID, k.Engine, h.Engine)
	}

	// It has worked before, so what it has is judged first.
	if len(k.History.Segments) > 0 {
		if err := w.check(conn, in, h, k); err != nil {
			return err
		}
	}

	return w.work(conn, in, h, k)
}

// load reads what is known of a victim.
func (w *witness) load(id string, k *known) error {
	// The name comes from the network and becomes a part of a file's name.
	if strings.Trim(id, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is no name of a victim", id)
	}
	b, err := os.ReadFile(knownName(w.dir, id))
	if err == nil {
		err = json.Unmarshal(b, k)
	}
	if err != nil {
		return fmt.Errorf("what was witnessed of %s cannot be read: %w", id, err)
	}

	return nil
}

// save replaces what is known of a victim by a rename, so that a witness which is killed leaves the old or the new.
func (w *witness) save(id string, k *known) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	name := knownName(w.dir, id)
	if err := os.WriteFile(name+"-new", b, 0o644); err != nil {
		return err
	}

	return os.Rename(name+"-new", name)
}

// check has a victim tell what there is, and judges it.
func (w *witness) check(conn net.Conn, in *bufio.Reader, h hello, k *known) error {
	ledger := &protocol.Ledger{}
	if err := hearAgain(ledgerName(w.dir, h.ID), ledger); err != nil {
		return err
	}

	// Everything that was heard before the crash was promised, wherever the cut was.
	k.History.Add(ledger, protocol.Never)

	if err := writeLine(conn, reply{ID: h.ID, Spec: k.spec("check")}); err != nil {
		return err
	}

	var d protocol.Dump
	switch err := d.Receive(in); {
	case err != nil:
		return err
	case d.Full:
		return fmt.Errorf("%s cannot open what it has, on a full disk: %s", h.ID, d.Failure)
	case !d.Done && d.Failure == "":
		return fmt.Errorf("%s was gone again before it had told what it has", h.ID)
	}
	var j protocol.Judgement

	if len(d.Found) > 0 {
		// What was issued last may have been on its way to the witness.
		for _, e := range d.Found[0] {
			k.History.Issued = max(k.History.Issued, e.N)
		}
		j = subjects.KV.Judge(k.History, d.Found[0])
	} else {
		j.Unread(k.History)
	}
	if len(d.Found) > 1 {
		j.Again(d.Found[0], d.Found[1])
	}

	for _, text := range append(d.Wrong, ledger.Findings()...) {
		j.Find(&j.Wrong, "%s", text)
	}
	if d.Failure != "" {
		j.Find(&j.Wrong, "recovery failed: %s", d.Failure)
	}

	// Only a machine that has started anew since tells of a power cut.
	what := "the process ended, the machine did not"
	if h.Boot == "" || h.Boot != k.Boot {
		what = "the machine went down"
		k.Cuts++
	} else {
		k.Ends++
	}
	k.Acked, k.Lost = k.Acked+j.Acked, k.Lost+j.Lost
	if j.Broken() {
		w.mu.Lock()
		w.broken++
		w.mu.Unlock()
		w.say("%s %s: %s: BROKEN: %d of %d acknowledged batches lost. %s", h.ID, h.Engine, what, j.Lost, j.Acked,
			strings.Join(j.Findings, "; "))

		return fmt.Errorf("%s is not gone on with: remove its directory to begin anew", h.ID)
	}
	w.say("%s %s: %s: %d batches had been acknowledged to survive power loss, all are there. So far it went down with "+
		"its machine %s and alone %s; of %d acknowledged batches none was lost.", h.ID, h.Engine, what, j.Acked,
		console.Number(k.Cuts, "time"), console.Number(k.Ends, "time"), k.Acked)

	// The next generation goes on behind what survived.
	k.Gen++
	k.Next, k.History.Skipped = j.Survived+1, append(k.History.Skipped, j.Skipped...)

	return nil
}

// work has a victim work, and keeps what it tells.
func (w *witness) work(conn net.Conn, in *bufio.Reader, h hello, k *known) (err error) {
	k.Boot = h.Boot

	k.History.Begin(k.Gen, k.Next)
	// The ledger is emptied first: without it, the new state would be judged by what the old one was told.
	ledger, err := os.Create(ledgerName(w.dir, h.ID))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	if err := w.save(h.ID, k); err != nil {
		return err
	}
	if err := writeLine(conn, reply{ID: h.ID, Spec: k.spec("work")}); err != nil {
		return err
	}
	w.say("%s %s works, from batch %d on. Pull the plug whenever you like.", h.ID, h.Engine, k.Next)

	// Whole messages only: the end is where the plug was pulled.
	out := bufio.NewWriterSize(ledger, 64<<10)
	heard := 0
	for {
		m, err := protocol.Receive(in)
		if err != nil {
			w.say("%s %s is gone, after %s. Start it again to see what it has.", h.ID, h.Engine,
				console.Number(heard, "acknowledgement"))
			return out.Flush()
		}
		if m.Kind == protocol.TellAcked {
			heard++
		}
		if _, err := out.Write(m.Append(nil)); err != nil {
			return err
		}

		// Written out whenever nothing more is waiting: a witness that is killed has lost little, and that on the safe
		// side.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// hearAgain enters what was heard before.
func hearAgain(name string, l *protocol.Ledger) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	l.Start()

	// The ledger ends with a whole message, because only whole ones were written. The rest of the read may be cut off by
	// a witness that was killed.
	in := bufio.NewReaderSize(f, 64<<10)
	for {
		m, err := protocol.Receive(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l.Hear(m, holdfast.Power, func(uint64) protocol.Position { return 0 })
	}
}

// reply is what the witness answers.
type reply struct {
	ID   string
	Spec protocol.Spec
}

// The settings of a victim that is witnessed. Little memory makes it flush and compact often.
const (
	witnessedMemory  = 16 << 20
	witnessedWriters = 6
	witnessedRate    = 4 << 20 // bytes of values a second
)

// spec is what the victim is told, with what it needs to compute the batches it had written before.
func (k *known) spec(role string) protocol.Spec {
	h := k.History

	return protocol.Spec{Role: role, Engine: k.Engine, Subject: subjects.KV.Name, Level: holdfast.Power, Seed: h.Seed,
		Gen: k.Gen, From: k.Next, Memory: witnessedMemory, Window: -1, Segments: h.Segments, Skipped: h.Skipped,
		Writers: witnessedWriters, Rate: witnessedRate, Opens: 2,
		Reopen: int64(time.Minute), SyncNow: int64(700 * time.Millisecond)}
}

// BeWitnessed works on an engine in dir, a directory of its own, tells the witness at an address all that is
// acknowledged, and goes on until the power is cut or ctx ends. Started again in the same directory, it first tells the
// witness what is there.
func (l Lab) BeWitnessed(ctx context.Context, address, dir, engine string, t console.Terminal) error {
	i := slices.IndexFunc(l.Engines, func(e all.Entry) bool { return e.Name == engine })
	if i < 0 {
		return witnessOp.Unknown("engine", engine, namesOf(l.Engines))
	}
	caps := l.Engines[i].Describe()
	if p := caps.Promise(holdfast.Power); p.Given != holdfast.Power {
		return witnessOp.BadOption(fmt.Sprintf("%s does not survive power loss: %s", engine, p.Why),
			"name another --engine")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return witnessOp.BadOption(err.Error(), "name the witness as HOST:PORT")
	}
	id, err := os.ReadFile(filepath.Join(dir, idName))
	if errors.Is(err, os.ErrNotExist) {
		if list, _ := os.ReadDir(dir); len(list) > 0 {
			return witnessOp.BadOption(dir+" is not empty, and no victim's", "name a new directory with --dir")
		}
	} else if err != nil {
		return witnessOp.BadOption(err.Error(), "name a directory of its own on the disk with --dir")
	}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%w: %w; start the witness first, on another machine: holdfast doctor witness --listen :7440",
			console.ErrIncomplete, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return witnessOp.BadOption(err.Error(), "name a directory of its own on the disk with --dir")
	}
	in, s := bufio.NewReader(conn), t.Screen()

	gone := func(err error) error {
		if ctx.Err() != nil {
			return console.ErrInterrupted
		}

		return fmt.Errorf("%w: the witness has ended the connection, and says why on its own terminal (%w)",
			console.ErrIncomplete, err)
	}
	me := hello{ID: string(id), Engine: engine, Single: !caps.AtomicBatches, Boot: bootID()}
	if err := writeLine(conn, me); err != nil {
		return gone(err)
	}

	report := protocol.NewReporter(conn)
	for {
		// The witness says what to do next. The victim has no state but its directory.
		var r reply
		if err := readLine(in, &r); err != nil {
			return gone(err)
		}
		r.Spec.Dir = dir
		open := func() (holdfast.Engine, error) { return l.open(r.Spec) }

		// The same command does both, so that whoever pulls the plug need not know what comes next.
		if r.Spec.Role == "check" {
			s.Printf("telling the witness what is there\n")
			if err := subjects.KV.Check(r.Spec, report, open); err != nil {
				if !errors.Is(err, holdfast.ErrLocked) { // by a victim that is dying: that is no breach
					report.Failed(err)
				}

				return err
			}
			report.Done()
			continue
		}

		// The name is on the disk before any work: without it, what survives could not be compared with anything.
		if err := keepID(dir, r.ID); err != nil {
			return err
		}
		s.Wrapped("", "working, with the witness. Pull the plug; when the machine is back, run the same command again.")

		ended := make(chan error, 1)
		go func() { // the witness says nothing more: what comes is its end
			_, err := in.ReadByte()
			ended <- gone(err)
		}()
		go func() {
			err := subjects.KV.Victim(r.Spec, report, open)
			report.Failed(err)
			ended <- err
		}()

		return <-ended // and the process ends, as if it were killed
	}
}

// keepID writes what the witness calls this directory, before anything is acknowledged.
func keepID(dir, id string) error {
	f, err := os.Create(filepath.Join(dir, idName))
	if err != nil {
		return err
	}
	_, err = f.WriteString(id)

	return errors.Join(err, f.Sync(), f.Close(), datadir.SyncDir(dir))
}

// bootID names this start of the machine. A process that ended alone has the same one when it comes back.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // there is none where this is not Linux
	return strings.TrimSpace(string(b))
}

// maxLine is the longest line of JSON that is read.
const maxLine = 1 << 20

// readLine reads a line of JSON. What comes from the network is bounded: see maxLine.
func readLine(in *bufio.Reader, v any) error {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return json.Unmarshal(line, v)
		}
		if !errors.Is(err, bufio.ErrBufferFull) || len(line) > maxLine {
			return err
		}
	}
}

// writeLine writes a value as a line of JSON.
func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))

	return err
}
