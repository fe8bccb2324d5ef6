package raftlog

import (
	"slices"

	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// spans are ascending, and neither meet nor touch each other. They are never changed; nil is none.
type spans []format.Span

// maxSpans is how many dead spans there are at most, so that a description is short.
const maxSpans = 16

// list returns the spans as a slice that must not be changed.
func (s *spans) list() []format.Span {
	if s == nil {
		return nil
	}

	return *s
}

// meeting returns the first that has an index of span.
func (s *spans) meeting(span format.Span) (format.Span, bool) {
	for _, own := range s.list() {
		if own.Meets(span) {
			return own, true
		}
	}

	return format.Span{}, false
}

func (s *spans) meets(span format.Span) bool {
	_, ok := s.meeting(span)
	return ok
}

func (s *spans) has(index uint64) bool { return s.meets(format.Span{Lo: index, Hi: index}) }

// with returns what is in s or in span.
func (s *spans) with(span format.Span) *spans {
	var all spans
	at := 0

	for _, own := range s.list() {
		switch {
		case own.Hi < span.Lo && own.Hi+1 != span.Lo:
			all = append(all, own)
			at = len(all)
		case span.Hi < own.Lo && span.Hi+1 != own.Lo:
			all = append(all, own)
		default:
			span = format.Span{Lo: min(span.Lo, own.Lo), Hi: max(span.Hi, own.Hi)}
		}
	}
	all = slices.Insert(all, at, span)

	return &all
}

// without returns what is in s and not in span.
func (s *spans) without(span format.Span) *spans {
	var all spans
	for _, own := range s.list() {
		if !own.Meets(span) {
			all = append(all, own)
			continue
		}
		if own.Lo < span.Lo {
			all = append(all, format.Span{Lo: own.Lo, Hi: span.Lo - 1})
		}
		if own.Hi > span.Hi {
			all = append(all, format.Span{Lo: span.Hi + 1, Hi: own.Hi})
		}
	}
	if len(all) == 0 {
		return nil
	}

	return &all
}
