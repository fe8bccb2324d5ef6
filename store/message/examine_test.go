package message_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// Every key that a store makes has a name that says what it is, and no other key has one.
func TestKeyName(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, message.Options{Name: "st", Level: holdfast.Memory})
	n := namespace(t, s, message.Default)
	for range 5000 { // counts are stored
		write(t, n, "a-1", msg("t"))
	}
	if err := n.SetRetention(ctx, "a-1", message.Retention{MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, n, "sub", message.SubscriptionOptions{})
	got := claim(t, sub, 2, 1, 2)
	if err := sub.Park(ctx, "why", got[1]); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	names := map[string]bool{}
	it := eng.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		name := message.KeyName(it.Key())
		if name == "" && event.KeyName(it.Key()) == "" || name != "" && !strings.HasSuffix(name, ` of message store "st"`) {
			t.Errorf("%q: %q", it.Key(), name)
		}
		name, _, _ = strings.Cut(name, " of message store")
		names[name] = true
	}
	for _, want := range []string{
		"the description", `namespace "default"`, `message 17 of stream "a-1" in namespace 1`,
		`block 0 of category "a" in namespace 1`, `what is kept of "a-1" in namespace 1`,
		`what is kept of "a" in namespace 1`,
		`message 0 in subscription "sub" in namespace 1`, `message 2 in subscription "sub" in namespace 1`,
	} {
		if !names[want] {
			t.Errorf("no key is %s", want)
		}
	}
	for _, key := range []string{"", "m", "m\x00", "m\x00s", "m\x00sxxxxxxxx", "m\x00?xxxxxxxx", "e\x00m", "m\x05a"} {
		if name := message.KeyName([]byte(key)); name != "" {
			t.Errorf("%q: %q", key, name)
		}
	}
	reports, err := event.Examine(eng)
	if err != nil || len(reports) != 1 {
		t.Fatal(reports, err)
	}
	if name := message.LogName(reports[0].Name); name != `messages of namespace 1 of store "st"` ||
		message.LogName("orders") != "" {
		t.Error(name)
	}
}
