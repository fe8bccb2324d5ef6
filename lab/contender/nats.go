package contender

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/store/message"
)

// NATS is the name of NATS JetStream.
const NATS = "nats"

// DescribeNATS says what JetStream gives.
func DescribeNATS() holdfast.Capabilities {
	return holdfast.Capabilities{
		Engine: NATS, Library: version("github.com/nats-io/nats-server/v2"),
		Memory: holdfast.Promise{Given: holdfast.Memory,
			How: "persist_mode async: a message is acknowledged while it is in the server's memory"},
		Process: holdfast.Promise{Given: holdfast.Process,
			How: "the default: written to a file before it is acknowledged, and synced every two minutes"},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "sync_interval always: written and synced before it is acknowledged, each message by itself"},
		LossWindow: natsSyncs, AtomicBatches: true, Checksums: true,
		MaxKeySize: holdfast.MaxKeySize, MaxValueSize: natsMaxPayload, MaxBatchSize: natsMaxPayload,
		Caveats: []string{
			"It holds messages only: one JetStream stream in files, without replicas, with a subject for each of our streams.",
			"It is a server, reached over loopback. Here it ends with the process that opened it.",
			"As it is by default, a power cut can take acknowledged messages of two minutes (its issue 7564).",
			"Positions in a stream are ours, in a header: JetStream counts the whole, and compares the last sequence of a " +
				"subject. So writers of one process to the same stream wait for each other.",
			"Ids are remembered for two minutes: a message that is written again later is there twice.",
			"With sync_interval always each message has its own sync, in turn: writers do not share them.",
			"The directory entry of a new file of messages is not synced.",
		},
	}
}

const (
	natsSyncs        = 2 * time.Minute // the server's default
	natsStream       = "messages"
	natsPrefix       = "message." // of subjects
	natsWindow       = 4096       // messages that are published and not yet acknowledged
	natsPage         = 1000       // messages that are got at once
	natsPageBytes    = 16 << 20
	natsMark         = 16     // every so many positions of a stream, it is remembered which sequence they have
	natsTails        = 100000 // streams about which something is remembered
	natsAckPatience  = time.Minute
	headerPosition   = "Position"
	headerType       = "Type"
	headerMetadata   = "Metadata-Bytes" // how many bytes of the payload's end are metadata
	statusEndOfPage  = "204"
	statusNothing    = "404"
	headerStatus     = "Status"
	headerNumPending = "Nats-Num-Pending"
)

// natsMessages is the store of messages in a JetStream.
type natsMessages struct {
	levelPeer
	server *natsServer   // to which it is connected
	others []*natsServer // of its cluster
	conn   *nats.Conn
	js     jetstream.JetStream

	tailsMu sync.Mutex
	tails   map[string]*natsTail // by subject
}

// natsTail is what is remembered of one stream. What is wrong with it is found out by the server, which is told the
// sequence that it should have.
type natsTail struct {
	// Guarded by tailsMu, so that readers do not wait for writers.
	users int
	marks []uint64 // the sequences of positions 0, natsMark, 2*natsMark ...

	mu    sync.Mutex // held by a writer until its message is acknowledged
	known bool       // whether last is
	last  natsPlace  // of the last message; sequence 0 if there is none
}

// OpenNATS makes or opens the files of a NATS server in dir, starts it, and connects to it. The server is this
// executable again, see [Serve]. MemoryBytes plays no part.
func OpenNATS(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openNATS(DescribeNATS, dir, o)
}

// openNATS opens what describe describes.
func openNATS(describe func() holdfast.Capabilities, dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, o, err := begin(describe(), dir, o, true)
	if err != nil {
		return nil, err
	}
	m := &natsMessages{tails: map[string]*natsTail{}}
	m.init(onlyMessages, h, o.Level, describe)
	m.shut = m.stop
	if err := m.start(o.Level); err != nil {
		if m.conn != nil {
			m.conn.Close()
		}
		if m.server != nil {
			killNATS(append(m.others, m.server))
		}

		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: m.name, Path: dir, Cause: err}, h.Close())
	}

	return m, nil
}

// start starts the server, connects to it, and makes the stream.
func (m *natsMessages) start(level holdfast.Level) (err error) {
	config := natsConfig(level)
	if level == holdfast.Quorum {
		var nodes []*natsServer
		if nodes, err = startNATSNodes(m.dir, config.Replicas); err != nil {
			return err
		}
		m.server, m.others = nodes[0], nodes[1:]
	} else if m.server, err = startNATSChild(natsRequest{Dir: filepath.Join(m.dir, "server"), Token: rand.Text(),
		Sync: level == holdfast.Power}, child.Start); err != nil {
		return err
	}
	if err = m.connect(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), natsPatience)
	defer cancel()
	info, err := m.makeStream(ctx, config)
	if err != nil {
		return err
	}
	m.settings = []holdfast.Setting{
		{Name: "sync_interval", Value: map[bool]string{true: "always", false: "2m (default)"}[level >= holdfast.Power]},
		{Name: "storage", Value: info.Config.Storage.String()},
		{Name: "replicas", Value: strconv.Itoa(info.Config.Replicas)},
		{Name: "persist_mode", Value: info.Config.PersistMode.String()},
		{Name: "duplicate_window", Value: info.Config.Duplicates.String()},
		{Name: "publish_window", Value: strconv.Itoa(natsWindow)},
	}
	if m.handle.New {
		return m.handle.Made()
	}

	return nil
}

// connect connects to m.server.
func (m *natsMessages) connect() (err error) {
	m.conn, err = nats.Connect(m.server.url, nats.Token(m.server.token), nats.NoReconnect(),
		nats.Timeout(10*time.Second), nats.Name("holdfast"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // calls return errors; it would print them
	if err != nil {
		return err
	}
	m.js, err = jetstream.New(m.conn, jetstream.WithPublishAsyncMaxPending(natsWindow),
		jetstream.WithPublishAsyncTimeout(natsAckPatience))

	return err
}

// makeStream makes the stream, or opens it. In a cluster it waits until all replicas have all of it, and connects to
// the node that leads it.
func (m *natsMessages) makeStream(ctx context.Context, config jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	for {
		short, cancel := context.WithTimeout(ctx, natsPatience/24) // a cluster that has no leader does not answer
		stream, err := m.js.CreateOrUpdateStream(short, config)
		var info *jetstream.StreamInfo
		if err == nil {
			info, err = stream.Info(short)
		}
		cancel()
		switch {
		case config.Replicas <= 1:
			return info, err
		case err != nil:
		case info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != config.Replicas-1 ||
			slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Lag > 0 }):
			err = errors.New("its replicas are not there yet")
		case info.Cluster.Leader == m.server.name:
			return info, nil
		default:
			i := slices.IndexFunc(m.others, func(s *natsServer) bool { return s.name == info.Cluster.Leader })
			if i < 0 {
				return nil, fmt.Errorf("the stream's leader is %q", info.Cluster.Leader)
			}
			m.conn.Close()
			m.server, m.others[i] = m.others[i], m.server
			if err := m.connect(); err != nil {
				return nil, err
			}
			continue
		}

		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// natsConfig is that of the stream.
func natsConfig(level holdfast.Level) jetstream.StreamConfig {
	config := jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{natsPrefix + "*.*"}, Storage: jetstream.FileStorage, AllowDirect: true,
		Duplicates: 2 * time.Minute, Replicas: 1,
	}

	switch level {
	case holdfast.Memory:
		config.PersistMode = jetstream.AsyncPersistMode
	case holdfast.Quorum:
		config.Replicas = 3
	}

	return config
}

// stop ends what uses the server, and then the server.
func (m *natsMessages) stop() error {
	m.beginClose()
	m.calls.Wait()
	var err error
	for _, s := range append(m.others, m.server) {
		_ = m.conn.Publish(natsStop+s.name, nil)
		_ = m.conn.FlushTimeout(10 * time.Second)
		err = errors.Join(err, s.wait())
	}
	m.conn.Close()

	return errors.Join(err, m.handle.Close())
}

// fail says why a call failed: the end of the server and the store come first.
func (m *natsMessages) fail(op string, err error) error {
	var known *holdfast.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case m.closing.Err() != nil:
		return m.isClosed(op)
	case m.conn.IsClosed():
		return &holdfast.Error{Op: op, Engine: m.name, Path: m.dir, Class: holdfast.ErrPoisoned,
			Cause: fmt.Errorf("the connection to the server has ended: %w", err), Remedy: "close it and open it again"}
	}
	e := &holdfast.Error{Op: op, Engine: m.name, Path: m.dir, Cause: err}
	if errors.Is(err, nats.ErrMaxPayload) {
		e.Class = holdfast.ErrTooLarge
	}

	return e
}

// A stream "category-id" has the subject message.CATEGORY.ID, each part escaped as in URLs. Two ids are written as no
// id can be: that of a stream without one, and the empty one.
const (
	noID    = "%"
	emptyID = "%%"
)

func natsSubject(stream string) string {
	category, id, has := strings.Cut(stream, "-")
	switch {
	case !has:
		id = noID
	case id == "":
		id = emptyID
	default:
		id = natsToken(id)
	}

	return natsPrefix + natsToken(category) + "." + id
}

// natsToken escapes what a part of a subject cannot have. The empty one, of the category of "-1", is "%".
func natsToken(s string) string {
	if s == "" {
		return noID
	}

	ordinary := true
	for i := range len(s) {
		c := s[i]
		ordinary = ordinary && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_:+", c) >= 0)
	}
	if ordinary {
		return s
	}
	// PathEscape leaves a '.' as it is.
	return strings.NewReplacer(".", "%2E", "*", "%2A", ">", "%3E").Replace(url.PathEscape(s))
}

// natsName is the stream of a subject.
func natsName(subject string) (string, error) {
	category, id, _ := strings.Cut(strings.TrimPrefix(subject, natsPrefix), ".")
	if category == noID {
		category = ""
	}

	switch id {
	case noID:
		return url.PathUnescape(category)
	case emptyID:
		id = ""
	}

	return url.PathUnescape(category + "-" + id)
}

// entry returns what is remembered of a stream. tailsMu must be held.
func (m *natsMessages) entry(subject string) *natsTail {
	t := m.tails[subject]
	if t == nil {
		if len(m.tails) >= natsTails {
			for other, t := range m.tails { // any that is not in use
				if t.users == 0 {
					delete(m.tails, other)
					break
				}
			}
		}
		t = &natsTail{}
		m.tails[subject] = t
	}

	return t
}

// tail returns what is remembered of a stream, locked for a writer, and what unlocks it.
func (m *natsMessages) tail(subject string) (t *natsTail, release func()) {
	m.tailsMu.Lock()
	t = m.entry(subject)
	t.users++
	m.tailsMu.Unlock()
	t.mu.Lock()

	return t, func() {
		t.mu.Unlock()
		m.tailsMu.Lock()
		t.users--
		m.tailsMu.Unlock()
	}
}

// natsPlace is where a message is in its stream, and in all.
type natsPlace struct {
	position int64
	sequence uint64
}

// mark remembers those of a stream's places that are the next to be remembered.
func (m *natsMessages) mark(subject string, places ...natsPlace) {
	m.tailsMu.Lock()
	defer m.tailsMu.Unlock()

	t := m.entry(subject)
	for _, at := range places {
		if at.position == int64(len(t.marks))*natsMark {
			t.marks = append(t.marks, at.sequence)
		}
	}
}

// before returns the place from which to look for a position in a stream: its own, or one before it.
func (m *natsMessages) before(subject string, position int64) natsPlace {
	m.tailsMu.Lock()
	defer m.tailsMu.Unlock()
	if t := m.tails[subject]; t != nil {
		if i := min(position/natsMark, int64(len(t.marks))-1); i >= 0 {
			return natsPlace{i * natsMark, t.marks[i]}
		}
	}

	return natsPlace{0, 1}
}

// load asks the server for the stream's last message.
func (m *natsMessages) load(ctx context.Context, t *natsTail, subject string) error {
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return err
	}
	reply, err := m.conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+natsStream, request)
	if err != nil {
		return err
	}

	switch reply.Header.Get(headerStatus) {
	case statusNothing:
		t.known, t.last = true, natsPlace{message.NoStream, 0}
		return nil
	case "":
	default:
		return fmt.Errorf("the last message of %s: %s", subject, reply.Header.Get("Description"))
	}
	at, err := placeOf(reply)
	if err == nil {
		t.known, t.last = true, at
	}

	return err
}

// placeOf returns where a message is.
func placeOf(m *nats.Msg) (at natsPlace, err error) {
	if at.position, err = strconv.ParseInt(m.Header.Get(headerPosition), 10, 64); err == nil {
		at.sequence, err = strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	}

	return at, err
}

// natsData returns the data of a message.
func natsData(m *nats.Msg) ([]byte, error) {
	text := m.Header.Get(headerMetadata)
	if text == "" {
		return m.Data, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > len(m.Data) {
		return nil, fmt.Errorf("a message of %d bytes with %q bytes of metadata", len(m.Data), text)
	}

	return m.Data[:len(m.Data)-n], nil
}

// Write implements [Messages].
func (m *natsMessages) Write(ctx context.Context, stream, id, typ string, data, metadata []byte, expected *int64) (
	int64, error) {
	if err := checkMessage(m.name, stream, typ, data, metadata); err != nil {
		return 0, err
	}
	if !plain(id) || strings.TrimSpace(id) != id {
		return 0, &holdfast.Error{Op: "write", Engine: m.name, Class: message.ErrBadMessage,
			Detail: fmt.Sprintf("the id %q begins or ends with a space, or is not UTF-8 without control characters", id)}
	}
	callers := ctx
	ctx, end, err := m.use(ctx, "write")
	if err != nil {
		return 0, err
	}
	defer end()
	subject := natsSubject(stream)
	tail, release := m.tail(subject)
	defer release()

	for {
		position, err := m.writeBehind(ctx, tail, stream, subject, id, typ, data, metadata, expected)
		var refused *jetstream.APIError
		switch {
		case errors.As(err, &refused) && slices.Contains(natsWrongSequence, refused.ErrorCode):
			continue // it has become longer; the tail is not known now
		case err == nil:
			m.counts.commits.Add(1)
			return position, nil
		case callers.Err() != nil:
			return 0, callers.Err()
		}

		return 0, m.fail("write", err)
	}
}

// natsWrongSequence are the errors of a message that is not behind the one that it should be: alone, and of replicas.
var natsWrongSequence = []jetstream.ErrorCode{jetstream.JSErrCodeStreamWrongLastSequence,
	jetstream.JSErrCodeStreamWrongLastSequenceConstant}

// writeBehind publishes a message behind the one that is remembered as the stream's last.
func (m *natsMessages) writeBehind(ctx context.Context, t *natsTail, stream, subject, id, typ string,
	data, metadata []byte, expected *int64) (int64, error) {
	if !t.known {
		if err := m.load(ctx, t, subject); err != nil {
			return 0, err
		}
	}
	if expected != nil && *expected != t.last.position { // unless another process has written
		if err := m.load(ctx, t, subject); err != nil {
			return 0, err
		}
	}
	if expected != nil && *expected != t.last.position {
		// The same message, which expected the same then, would be behind what it expected.
		if done, err := m.isThere(ctx, t, subject, *expected+1, id); err != nil || done {
			return *expected + 1, err
		}

		return 0, &holdfast.Error{Op: "write", Engine: m.name, Class: message.ErrConflict,
			Cause: &message.Conflict{Stream: stream, Expected: *expected, Actual: t.last.position}}
	}
	position := t.last.position + 1
	msg := nats.NewMsg(subject)
	msg.Data = data
	msg.Header.Set(headerPosition, strconv.FormatInt(position, 10))
	msg.Header.Set(headerType, typ)
	if metadata != nil {
		msg.Header.Set(headerMetadata, strconv.Itoa(len(metadata)))
		msg.Data = append(append(make([]byte, 0, len(data)+len(metadata)), data...), metadata...)
	}
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(t.last.sequence)}
	if id != "" {
		options = append(options, jetstream.WithMsgID(id))
	}
	t.known = false // until it is known what has become of this one
	future, err := m.js.PublishMsgAsync(msg, options...)
	if err != nil {
		return 0, err
	}

	select {
	case ack := <-future.Ok():
		if !ack.Duplicate {
			t.known, t.last = true, natsPlace{position, ack.Sequence}
			m.mark(subject, t.last)

			return position, nil
		}
		t.known = true // as it was

		return m.again(ctx, stream, subject, id, ack.Sequence)
	case err := <-future.Err():
		return 0, err
	case <-m.server.ended:
		return 0, m.server.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// isThere reports whether the message at position has that id.
func (m *natsMessages) isThere(ctx context.Context, t *natsTail, subject string, position int64, id string) (
	there bool, err error) {
	if id == "" || position < 0 || position > t.last.position {
		return false, nil
	}
	err = m.readSubject(ctx, m.before(subject, position), subject, position, 1, func(at natsPlace, msg *nats.Msg) error {
		there = at.position == position && msg.Header.Get(jetstream.MsgIDHeader) == id
		return nil
	})

	return there, err
}

// again returns the position of a message that was written before, which the server found at sequence.
func (m *natsMessages) again(ctx context.Context, stream, subject, id string, sequence uint64) (int64, error) {
	request := fmt.Appendf(nil, `{"seq":%d}`, sequence)
	var msg *nats.Msg
	for msg == nil || msg.Header.Get(headerStatus) == statusNothing { // of a replica that does not have it yet
		var err error
		if msg, err = m.conn.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+natsStream, request); err != nil {
			return 0, err
		}
	}
	place, err := placeOf(msg)
	if err != nil {
		return 0, fmt.Errorf("message %d: %w", sequence, err)
	}
	if at := msg.Header.Get(jetstream.SubjectHeader); at != subject {
		other, err := natsName(at)

		return 0, errors.Join(&holdfast.Error{Op: "write", Engine: m.name, Class: message.ErrIDTaken,
			Detail: fmt.Sprintf("message %s is in stream %q", id, other)}, err)
	}

	return place.position, nil
}

// ReadStream implements [Messages].
func (m *natsMessages) ReadStream(ctx context.Context, stream string, from int64, limit int,
	yield func(position int64, data []byte) error) error {
	ctx, end, err := m.use(ctx, "read")
	if err != nil {
		return err
	}
	defer end()
	subject := natsSubject(stream)
	var marks []natsPlace
	var stopped error
	first := m.before(subject, max(from, 0))
	err = m.readSubject(ctx, first, subject, from, limit, func(at natsPlace, msg *nats.Msg) error {
		if at.position%natsMark == 0 {
			marks = append(marks, at)
		}
		data, err := natsData(msg)
		if err == nil {
			stopped = yield(at.position, data)
			err = stopped
		}

		return err
	})
	if len(marks) > 0 {
		m.mark(subject, marks...)
	}
	if stopped != nil {
		return stopped
	}

	return m.fail("read", err)
}

// readSubject yields a stream's messages from position from on, which is not before the place first.
func (m *natsMessages) readSubject(ctx context.Context, first natsPlace, subject string, from int64, limit int,
	yield func(at natsPlace, msg *nats.Msg) error) error {
	n := 0
	page := natsPage
	if limit > 0 { // what is between the place and the first message that is wanted comes along
		page = int(min(int64(limit)+max(0, from-first.position), natsPage))
	}

	return m.read(ctx, subject, first.sequence, page, func(msg *nats.Msg) (more bool, err error) {
		at, err := placeOf(msg)
		if err != nil || at.position < from {
			return true, err
		}
		n++
		err = yield(at, msg)

		return limit <= 0 || n < limit, err
	})
}

// read yields the messages of a filter, beginning at a sequence, until yield wants no more.
func (m *natsMessages) read(ctx context.Context, filter string, from uint64, page int,
	yield func(msg *nats.Msg) (more bool, err error)) error {
	inbox := m.conn.NewInbox()
	replies, err := m.conn.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }()

	for from = max(from, 1); ; {
		request := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d,"max_bytes":%d}`, from, filter, page,
			natsPageBytes)
		if err := m.conn.PublishRequest("$JS.API.DIRECT.GET."+natsStream, inbox, request); err != nil {
			return err
		}

		for {
			msg, err := replies.NextMsgWithContext(ctx)
			if err != nil {
				return err
			}
			status := msg.Header.Get(headerStatus)
			if status == statusNothing || status == statusEndOfPage && msg.Header.Get(headerNumPending) == "0" {
				return nil
			}
			if status == statusEndOfPage {
				break
			}
			if status != "" {
				return fmt.Errorf("messages of %s: %s %s", filter, status, msg.Header.Get("Description"))
			}
			sequence, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
			if err != nil {
				return err
			}
			from = sequence + 1
			if more, err := yield(msg); err != nil || !more {
				return err
			}
		}
	}
}

// natsFilter is what the subjects of a category match.
func natsFilter(category string) string {
	if category == "" {
		return natsPrefix + ">"
	}

	return natsPrefix + natsToken(category) + ".*"
}

// ReadCategory implements [Messages]. The server does not know consumer groups by streams: a member gets all messages,
// and leaves those of others.
func (m *natsMessages) ReadCategory(ctx context.Context, category string, from int64, limit int, member, size int,
	yield func(global int64, stream string, data []byte) error) error {
	ctx, end, err := m.use(ctx, "read")
	if err != nil {
		return err
	}
	defer end()
	group := message.Group{Member: member, Size: size}
	page := natsPage
	if limit > 0 {
		page = min(limit*max(size, 1), natsPage)
	}
	n := 0
	var stopped error
	err = m.read(ctx, natsFilter(category), uint64(max(from, 1)), page, func(msg *nats.Msg) (bool, error) {
		stream, err := natsName(msg.Header.Get(jetstream.SubjectHeader))
		if err != nil || !group.Has(stream) {
			return true, err
		}
		at, err := placeOf(msg)
		if err != nil {
			return false, err
		}
		data, err := natsData(msg)
		if err != nil {
			return false, err
		}
		n++
		stopped = yield(int64(at.sequence), stream, data)

		return limit <= 0 || n < limit, stopped
	})
	if stopped != nil {
		return stopped
	}

	return m.fail("read", err)
}

// Follow implements [Messages], by an ordered consumer.
func (m *natsMessages) Follow(ctx context.Context, category string, from int64,
	yield func(global int64, data []byte) bool) error {
	callers := ctx
	ctx, end, err := m.use(ctx, "follow")
	if err != nil {
		return err
	}
	defer end()
	err = m.follow(ctx, category, from, yield)
	if callers.Err() != nil && err != nil {
		return callers.Err()
	}

	return m.fail("follow", err)
}

func (m *natsMessages) follow(ctx context.Context, category string, from int64,
	yield func(global int64, data []byte) bool) error {
	consumer, err := m.js.OrderedConsumer(ctx, natsStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{natsFilter(category)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq: uint64(max(from, 1)), InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()

	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		at, err := msg.Metadata()
		if err != nil {
			return err
		}
		data, err := natsData(&nats.Msg{Header: msg.Headers(), Data: msg.Data()})
		if err != nil {
			return err
		}
		if !yield(int64(at.Sequence.Stream), data) {
			return nil
		}
	}
}
