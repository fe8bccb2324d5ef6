package event_test

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
)

// A nil context is an error, and has no effect.
func TestNilContext(t *testing.T) {
	s := memLog(t)
	e := event.Event{Type: "t", ID: "id"}
	appendOK(t, s, event.Event{Type: "t"})
	var none context.Context
	for what, f := range map[string]func() error{
		"Append":         func() error { _, err := s.Append(none, e); return err },
		"AppendAfter":    func() error { _, err := s.AppendAfter(none, 1, e); return err },
		"Submit":         func() error { _, err := s.Submit(none, e); return err },
		"SubmitAfter":    func() error { _, err := s.SubmitAfter(none, 1, e); return err },
		"Read":           func() error { _, err := s.Read(none, 0, 0); return err },
		"SaveOffset":     func() error { return s.SaveOffset(none, "s", 1) },
		"LoadOffset":     func() error { _, err := s.LoadOffset(none, "s"); return err },
		"DeleteOffset":   func() error { return s.DeleteOffset(none, "s") },
		"SaveSnapshot":   func() error { return s.SaveSnapshot(none, "s", 1, nil) },
		"LoadSnapshot":   func() error { _, _, err := s.LoadSnapshot(none, "s"); return err },
		"TruncateBefore": func() error { _, err := s.TruncateBefore(none, 2); return err },
		"Follow": func() error {
			for _, err := range s.Follow(none, 1) {
				return err
			}
			return nil
		},
		"Records": func() error {
			for _, err := range s.Records(none, 1, 0) {
				return err
			}
			return nil
		},
	} {
		if err := f(); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s.Last() != 1 || s.First() != 1 {
		t.Errorf("the log has events %d to %d", s.First(), s.Last())
	}
}
