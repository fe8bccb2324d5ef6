package eventodb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// load serves /import: the messages of the body, a line each, with the positions that they have. The answer tells how
// far it has come. With force all that is in the namespace is deleted first, which needs the role Admin in it.
func (s *service) load(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	principal := route.From(ctx).Principal
	namespace := own(r, principal)
	if r.URL.Query().Get("force") == "true" {
		if !principal.May(auth.Admin, namespace) {
			refuse(w, r, forbidden("force", namespace, auth.Admin))
			return
		}
		if _, err := s.data.Messages().Clear(ctx, namespace); err != nil {
			route.From(ctx).Err = err
			f := failed(err)
			f.Status, f.Code = http.StatusInternalServerError, "CLEAR_FAILED"
			f.write(w)

			return
		}
	}
	n, err := s.data.Messages().Namespace(ctx, namespace)
	if err != nil {
		refuse(w, r, err)
		return
	}
	begun := time.Now()
	out := newEventStream(w)
	var told []byte // at the end: there are clients that send all before they read anything
	done, err := n.Import(ctx, r.Body, func(p message.ImportResult) {
		told = strconv.AppendInt(append(told, `data: {"imported":`...), p.Imported, 10)
		told = strconv.AppendInt(append(told, `,"gpos":`...), p.Last, 10)
		told = append(told, "}\n\n"...)
	})
	if err != nil {
		told = append(append(told, "data: "...), refusal(err, done)...)
	} else {
		told = strconv.AppendInt(append(told, `data: {"done":true,"imported":`...), done.Imported, 10)
		told = strconv.AppendInt(append(told, `,"known":`...), done.Known, 10)
		told = fmt.Appendf(told, `,"elapsed":"%.1fs"}`, time.Since(begun).Seconds())
	}
	_ = out.send(append(told, "\n\n"...))
}

// refusal tells why an import has ended early, and at which line.
func refusal(err error, done message.ImportResult) []byte {
	var told struct {
		Error   string `json:"error"`
		Message string `json:"message"`
		Line    int64  `json:"line"`
	}
	told.Error, told.Message, told.Line = "IMPORT_FAILED", err.Error(), done.Imported+done.Known
	var line *message.ImportError
	if errors.As(err, &line) {
		told.Line = line.Line
	}

	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	is := func(class error) bool { return errors.Is(err, class) }
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind):
		told.Error = "INVALID_JSON"
	case is(message.ErrPositionTaken), is(message.ErrIDTaken):
		told.Error = "POSITION_EXISTS"
	case is(holdfast.ErrTooLarge) && line != nil:
		told.Error = "READ_ERROR"
	case line != nil && (is(message.ErrBadMessage) || is(message.ErrBadName)):
		told.Error = "INVALID_RECORD"
	}
	text, err := json.Marshal(told)
	if err != nil {
		panic(err) // it has strings and a number only
	}

	return bytes.TrimSpace(text)
}
