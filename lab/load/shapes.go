package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
)

// Shape is what the clients of a load do.
type Shape struct {
	Name, About string

	workers   int           // unless the request says otherwise
	rate      float64       // operations a second of an open loop; 0 is a closed one
	followers int           // 0 if it has none
	batch     int           // events of one operation; 0 if not all append so many
	events    int64         // that are appended in all; 0 for as many as the time allows
	readBack  bool          // events of the log are read back when it is over
	length    time.Duration // of a measurement
	// null has the answers of the null server, by method and path.
	null map[string]string
	// headers carry the token.
	headers func(token string) []string
	// do makes one operation.
	op func(w *worker) error
}

// Shapes is the table of shapes.
func Shapes() []Shape {
	return []Shape{
		{Name: "eventodb", About: "the fourth study's load: POST /rpc, stream.write to 100 streams with metadata, and " +
			"after each tenth a stream.get of 10 messages", workers: 10, length: 5 * time.Second, headers: bearer,
			op:   eventodbDo,
			null: map[string]string{"POST /rpc": `{"position":1,"globalPosition":1}`}},
		{Name: "ebuse", About: "the first study's work: POST /events, and of 10 operations one batch of 100 events and one " +
			"read of 100; all events are read back in the end", workers: 10, length: 5 * time.Second, headers: apiKey,
			op: ebuseDo, readBack: true,
			null: map[string]string{
				"POST /events":       `{"position":1,"type":"BenchEvent","data":{"index":1},"timestamp":"2026-01-01T00:00:00Z"}`,
				"GET /events":        "[]",
				"POST /events/batch": `{"first_position":1,"last_position":100,"saved":100}`}},
		{Name: Events, About: "the first study's ten million events: POST /events/batch of 100, or of as many as " +
			"--batch says, until --events are there; all are read back in the end", workers: 10, length: time.Hour,
			headers: apiKey, op: eventsDo, batch: 100, events: 10_000_000, readBack: true},
		{Name: "messages", About: "the eventodb load on /v1: POST of one message, and after each tenth a page of 10",
			workers: 10, length: 5 * time.Second, headers: bearer, op: messagesDo,
			null: map[string]string{
				"POST " + messagesPath: `{"stream":"load-1","position":1,"global":1}`,
				"GET " + messagesPath:  `{"messages":[],"next":0}`}},
		{Name: "tasks", About: "a task's life on /v1: it is enqueued, claimed and completed; three requests are one " +
			"operation",
			workers: 10, length: 5 * time.Second, headers: bearer, op: tasksDo,
			null: map[string]string{
				"POST " + tasksPath:                `{"results":[{"id":"1"}]}`,
				"POST " + tasksPath + "/claim":     `{"leases":[{"task":{"id":"1"},"token":1}]}`,
				"POST " + leasesPath + "/complete": `{"results":[{}]}`}},
		{Name: Follow, About: "followers of one stream by server-sent events, and writes to it at a steady rate: the " +
			"latency is that of deliveries, from when a write was due", workers: 8, rate: 100, followers: 100,
			length: 5 * time.Second, headers: bearer, op: followDo,
			null: map[string]string{"POST " + followWrite: `{"stream":"load-followed","position":1,"global":1}`}},
		{Name: Soak, About: "messages, followers of 100 streams and 64 task workers at a steady rate: fails if the " +
			"server's memory or goroutines grow", workers: 8, rate: 100, followers: 1000, length: time.Hour, headers: bearer,
			op: soakDo},
	}
}

// The shapes with parts of their own.
const (
	Events = "events"
	Follow = "follow"
	Soak   = "soak"
)

const (
	defaultSpace = "/v1/namespaces/default"
	messagesPath = defaultSpace + "/messages"
	tasksPath    = defaultSpace + "/tasks"
	leasesPath   = defaultSpace + "/leases"
	followWrite  = messagesPath
)

func bearer(token string) []string { return []string{"Authorization: Bearer " + token} }
func apiKey(token string) []string { return []string{"X-API-Key: " + token} }

// worker is one client.
type worker struct {
	*conn
	number   int
	random   *rand.Rand
	asked    string // level that writes ask for, "" for none
	level    string // that answers to writes have named, "" if they name none
	wrote    int64  // answers to writes; no level yet if 0
	ops      int64
	body     []byte
	base     time.Time // that times in messages count from
	followed string    // the stream that followers follow
	due      time.Duration
	log      *eventLog // that events are appended to
}

var levelNames = func() (names []string) {
	for _, l := range holdfast.Levels() {
		names = append(names, l.String())
	}

	return names
}()

// get reads.
func (w *worker) get(path string) (answer, error) { return w.ask("GET", path, nil) }

// post makes a request that writes nothing.
func (w *worker) post(path string, body []byte) (answer, error) { return w.ask("POST", path, body) }

// write makes a request that writes, and looks at the level that the answer names: all must name the same one, and if a
// level is asked for, that or a stronger one.
func (w *worker) write(path string, body []byte) (a answer, err error) {
	if w.asked != "" {
		a, err = w.ask("POST", path, body, api.HeaderLevel+": "+w.asked)
	} else {
		a, err = w.post(path, body)
	}
	if err != nil {
		return a, err
	}
	if w.wrote == 0 {
		w.level = a.level
	}
	w.wrote++
	if a.level != w.level {
		return a, fmt.Errorf("an answer names level %q, and others %q", a.level, w.level)
	}
	if w.asked != "" && rank(a.level) < rank(w.asked) {
		return a, fmt.Errorf("writes ask for level %s, and an answer names %q", w.asked, a.level)
	}

	return a, nil
}

// rank is how strong a level is, 0 for one that is not known.
func rank(name string) holdfast.Level {
	level, err := holdfast.ParseLevel(name)
	if err != nil {
		return 0
	}

	return level
}

// readOften is how many operations are one read.
const readOften = 11

// streams is how many streams messages are written to.
const streams = 100

// padding makes the data of a message about 200 bytes.
const padding = `,"user":{"id":"user-4711","name":"Ada Lovelace","address":{"city":"London",` +
	`"street":"St James Square 12"}},` +
	`"items":[{"sku":"A-100","quantity":2},{"sku":"B-200","quantity":1}],"note":"as discussed"}`

func eventodbDo(w *worker) error {
	stream := w.random.Int64N(streams)
	b := w.body[:0]
	if w.ops++; w.ops%readOften == 0 {
		b = strconv.AppendInt(append(b, `["stream.get","test-stream-`...), stream, 10)
		w.body = append(b, `",{"position":0,"batchSize":10}]`...)
		_, err := w.post("/rpc", w.body)

		return err
	}
	b = strconv.AppendInt(append(b, `["stream.write","test-stream-`...), stream, 10)
	b = append(b, `",{"type":"LoadTestEvent","data":`...)
	b = append(w.data(b), `,"metadata":{"correlationStreamName":"workflow-`...)
	b = append(strconv.AppendInt(b, int64(w.number), 10), `"}}]`...)
	w.body = b
	_, err := w.write("/rpc", b)

	return err
}

// data appends the data of a message. The time in it is when its operation was due.
func (w *worker) data(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"at":`...), int64(w.due), 10)
	b = strconv.AppendInt(append(b, `,"worker":`...), int64(w.number), 10)
	b = strconv.AppendInt(append(b, `,"operation":`...), w.ops, 10)

	return append(b, padding...)
}

func ebuseDo(w *worker) error {
	w.ops++
	switch {
	case w.ops%10 == 9:
		return w.append(100)
	case w.ops%10 == 0:
		_, err := w.get("/events?from=1&to=100")
		return err
	default:
		return w.append(1)
	}
}

func eventsDo(w *worker) error {
	w.ops++
	return w.append(w.log.batch)
}

// message makes the request that writes one message to a stream, and writes it.
func (w *worker) message(stream string, number int64) error {
	b := append(append(w.body[:0], `{"stream":"`...), stream...)
	if number >= 0 {
		b = strconv.AppendInt(b, number, 10)
	}
	b = append(b, `","messages":[{"type":"LoadTestEvent","data":`...)
	b = append(w.data(b), `,"metadata":{"correlationStreamName":"workflow-`...)
	b = append(strconv.AppendInt(b, int64(w.number), 10), `"}}]}`...)
	w.body = b
	_, err := w.write(messagesPath, b)

	return err
}

func messagesDo(w *worker) error {
	stream := w.random.Int64N(streams)
	if w.ops++; w.ops%readOften == 0 {
		_, err := w.get(messagesPath + "?from=0&limit=10&stream=load-" + strconv.FormatInt(stream, 10))
		return err
	}

	return w.message("load-", stream)
}

var (
	newTask = []byte(`{"tasks":[{"queue":"load","kind":"load","payload":"eyJ0byI6ImFkYUBleGFtcGxlLm9yZyJ9"}]}`)
	// Nothing is left of it: what a soak finds to grow is not what it has kept.
	briefTask = []byte(`{"tasks":[{"queue":"load","kind":"load","payload":"eyJ0byI6ImFkYUBleGFtcGxlLm9yZyJ9",` +
		`"keep_ms":-1}]}`)
	claimTask = []byte(`{"queues":["load"],"n":1,"lease_ms":60000,"worker":"load","wait_ms":1000}`)
)

func tasksDo(w *worker) error {
	w.ops++
	if _, err := w.write(tasksPath, newTask); err != nil {
		return err
	}
	done, err := w.runTask()
	if err == nil && !done {
		err = errors.New("no task was claimed within a second, though one was enqueued")
	}

	return err
}

// runTask claims a task and completes it. done is false if there was none.
func (w *worker) runTask() (done bool, err error) {
	a, err := w.write(tasksPath+"/claim", claimTask)
	if err != nil {
		return false, err
	}
	var claimed struct {
		Leases []struct {
			Task struct {
				ID string `json:"id"`
			} `json:"task"`
			Token uint64 `json:"token"`
		} `json:"leases"`
	}
	if err := json.Unmarshal(a.body, &claimed); err != nil || len(claimed.Leases) == 0 {
		return false, err
	}
	l := claimed.Leases[0]
	w.body = fmt.Appendf(w.body[:0], `{"leases":[{"id":%q,"token":%d}]}`, l.Task.ID, l.Token)
	if a, err = w.write(leasesPath+"/complete", w.body); err != nil {
		return false, err
	}
	var settled api.LeaseResults
	if err := json.Unmarshal(a.body, &settled); err != nil {
		return false, err
	}
	if len(settled.Results) != 1 || settled.Results[0].Code != "" {
		return false, fmt.Errorf("a task in hand is not completed: %s", a.body)
	}

	return true, nil
}

const followed = "load-followed"

func followDo(w *worker) error {
	w.ops++
	return w.message(w.followed, -1)
}

// soakDo writes a message, or enqueues a task.
func soakDo(w *worker) error {
	if w.ops++; w.ops%2 == 0 {
		_, err := w.write(tasksPath, briefTask)
		return err
	}

	return w.message("load-", w.random.Int64N(streams))
}

// sentAt finds out when the message in a line of server-sent events was due: its data begins with that, see data.
func sentAt(line []byte) (at time.Duration, ok bool) {
	if !bytes.HasPrefix(line, []byte("data:")) {
		return 0, false
	}
	_, rest, ok := bytes.Cut(line, []byte(`{"at":`))
	if !ok {
		return 0, false
	}

	n := int64(0)
	for _, c := range bytes.TrimLeft(rest, " ") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}

	return time.Duration(n), true
}
