package v1

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// admin declares what is done with the server itself.
func (s *service) admin() {
	s.namespaces()
	s.tokens()
	s.operations()
}

// namespaces declares what is done with namespaces.
func (s *service) namespaces() {
	const tag = "namespaces"
	declare(s, operation{id: "list-namespaces", method: http.MethodGet, path: "/v1/namespaces", role: auth.Admin,
		tag: tag, summary: "List namespaces, in the order of their ids"},
		func(c *call, in *struct {
			After string `query:"after" doc:"The last id of the page before."`
			Limit int    `query:"limit" is:"natural" doc:"How many namespaces at most: 1000 if absent, never more than 10000."`
		}) ([]api.Namespace, error) {
			limit, err := page(in.Limit)
			if err != nil {
				return nil, err
			}
			list, err := c.data.Namespaces(c.ctx, in.After, limit)
			totals, wrong := c.data.Totals(c.ctx, list)
			if wrong != nil {
				return nil, wrong
			}

			out := []api.Namespace{}
			for _, info := range list {
				if total, ok := totals[info.ID]; ok { // else it was deleted by now
					n := namespace(info, total)
					n.Space = c.data.Lies(info.ID)
					out = append(out, n)
				}
			}

			return out, err
		})
	declare(s, operation{id: "create-namespace", method: http.MethodPost, path: "/v1/namespaces", role: auth.Admin,
		tag: tag, write: true, summary: "Create a namespace", about: "Its token is told once, in the answer.",
		codes: []string{api.CodeExists}},
		func(c *call, in *struct{ Body api.NewNamespace }) (out api.Namespace, err error) {
			// The secret is kept as its hash alone, so this answer is the only one that has it.
			secret := auth.NewNamespaceSecret(in.Body.ID)
			info, err := c.data.Create(c.ctx, message.NamespaceOptions{ID: in.Body.ID,
				Description: in.Body.Description, Metadata: api.Present(in.Body.Metadata)}, secret)
			if err != nil {
				return out, err
			}
			out = namespace(info, data.Total{})
			out.Token = secret

			return out, nil
		})
	declare(s, operation{id: "get-namespace", method: http.MethodGet, path: inNamespace, role: auth.Read, tag: tag,
		summary: "Describe a namespace"},
		func(c *call, _ *none) (out api.Namespace, err error) {
			info, err := c.data.Info(c.ctx, c.ns)
			if err != nil {
				return out, err
			}

			total, err := c.data.Total(c.ctx, info.ID)

			return namespace(info, total), err
		})
	declare(s, operation{id: "delete-namespace", method: http.MethodDelete, path: inNamespace, role: auth.Admin, tag: tag,
		summary: "Delete a namespace with its messages, logs, tasks and tokens", namespace: everywhere, stream: true,
		about: "The answer tells how many messages there were. After an error a part may be gone: delete it again."},
		func(c *call, _ *none) (out api.Removed, err error) {
			out.Removed, err = c.data.Delete(c.ctx, c.ns)
			return out, err
		})
}

// everywhere is the namespace of operations that concern all: a token for one namespace is not enough.
func everywhere(*http.Request, auth.Principal) string { return auth.Everywhere }

// namespace describes a namespace with what it has.
func namespace(info message.Info, has data.Total) api.Namespace {
	return api.Namespace{ID: info.ID, Description: info.Description, Metadata: info.Metadata, Created: info.Created,
		Messages: has.Messages, Streams: has.Streams, Last: has.Last}
}

// own is the namespace of the token that a request is made with.
func own(_ *http.Request, p auth.Principal) string { return p.Namespace }

// tokens declares what is done with tokens.
func (s *service) tokens() {
	const tag = "tokens"
	declare(s, operation{id: "list-tokens", method: http.MethodGet, path: "/v1/tokens", role: auth.Admin, tag: tag,
		summary: "List tokens, but for those of namespaces themselves", about: "Without a namespace, all.",
		namespace: func(r *http.Request, _ auth.Principal) string {
			if n := r.URL.Query().Get("namespace"); n != "" {
				return n
			}

			return auth.Everywhere
		}},
		func(c *call, in *struct {
			Namespace string `query:"namespace" doc:"Tokens of this namespace only, * for those that are good for all."`
		}) ([]api.Token, error) {
			list, err := s.data.Tokens().List(c.ctx, in.Namespace)
			out := make([]api.Token, len(list))

			for i, t := range list {
				out[i] = token(t)
			}

			return out, err
		})
	declare(s, operation{id: "create-token", method: http.MethodPost, path: "/v1/tokens", role: auth.Admin, tag: tag,
		summary: "Create a token", about: "Its secret is told once, in the answer.", namespace: own, write: true,
		codes: []string{api.CodeNoNamespace}},
		func(c *call, in *struct{ Body api.NewToken }) (out api.Token, err error) {
			k := auth.Token{Namespace: in.Body.Namespace, Description: in.Body.Description}

			// The route asked for the role in the caller's own namespace. The one that the token is to be for stands in the
			// body.
			if !c.req.Principal.May(auth.Admin, k.Namespace) {
				return out, &holdfast.Error{Op: "create token", Class: auth.ErrForbidden,
					Detail: fmt.Sprintf("this needs the role admin in %.80q", k.Namespace)}
			}
			known := false
			if k.Role, known = auth.ParseRole(in.Body.Role); !known {
				return out, &holdfast.Error{Op: "create token", Class: holdfast.ErrBadOption,
					Detail: fmt.Sprintf("the role is %.80q; it is read, query, write or admin", in.Body.Role)}
			}
			if in.Body.Expires != nil {
				k.Expires = *in.Body.Expires
			}
			k, secret, err := s.data.Tokens().Create(c.ctx, k)
			if err != nil {
				return out, err
			}
			out = token(k)
			out.Secret = secret

			return out, nil
		})
	declare(
		s,
		operation{id: "revoke-token", method: http.MethodDelete, path: "/v1/tokens/{id}", role: auth.Admin, tag: tag,
			summary: "Revoke a token", write: true, codes: []string{api.CodeNotFound},

			// The role is needed where the token is good for, which only the token itself says.
			namespace: func(r *http.Request, p auth.Principal) string {
				if t, err := s.data.Tokens().Get(r.Context(), r.PathValue("id")); err == nil {
					return t.Namespace
				}

				return p.Namespace // there is none, as the handler says
			}},
		func(c *call, in *struct {
			ID string `path:"id" doc:"The token's id."`
		}) (none, error) {
			return none{}, s.data.Tokens().Revoke(c.ctx, in.ID)
		},
	)
	declare(s, operation{id: "get-token", method: http.MethodGet, path: "/v1/token", role: auth.Read, tag: tag,
		summary: "Describe the token that the request is made with", namespace: own},
		func(c *call, _ *none) (api.Token, error) {
			p := c.req.Principal
			t, err := s.data.Tokens().Get(c.ctx, p.TokenID)
			if errors.Is(err, holdfast.ErrNotFound) { // a namespace's own
				return api.Token{ID: p.TokenID, Namespace: p.Namespace, Role: p.Role.String()}, nil
			}

			return token(t), err
		})
}

// token is the form in which a token is told, without its secret.
func token(t auth.Token) api.Token {
	out := api.Token{
		ID:          t.ID,
		Namespace:   t.Namespace,
		Role:        t.Role.String(),
		Description: t.Description,
		Created:     t.Created,
	}
	if !t.Expires.IsZero() {
		out.Expires = &t.Expires
	}

	return out
}

// operations declares what is done with the server as a whole.
func (s *service) operations() {
	const tag = "server"
	started := time.Now()
	declare(s, operation{id: "get-server", method: http.MethodGet, path: "/v1/server", role: auth.Read, tag: tag,
		summary: "Describe the server and its engine"},
		func(c *call, _ *none) (out api.Server, err error) {
			caps, m := c.data.Engine().Capabilities(), c.data.Engine().Metrics()
			known := holdfast.Unknown
			if m.Owner != 0 { // otherwise reads wait, and the trouble is what somebody came to see
				var namespaces []message.Info
				namespaces, err = c.data.Namespaces(c.ctx, "", 0)
				if err != nil && !errors.Is(err, holdfast.ErrCorrupt) { // so are damaged descriptions
					return out, err
				}
				known = len(namespaces)
			}
			trouble := errors.Join(err, m.Poison, m.Trouble)
			given := caps.Promise(c.data.Level()).Given
			out = api.Server{Version: s.o.Version, Started: started, Engine: caps.Engine, Level: given.String(),
				Ready: s.o.Ready() == nil, LossMS: api.MS(caps.LossWindow), Unsynced: given < holdfast.Power,
				Settings: []api.Setting{}, Caveats: caps.Caveats, Namespaces: known,
				Counters: api.Counters{Commits: m.Commits, Groups: m.Groups, Syncs: m.Syncs, BytesWritten: m.BytesWritten,
					DiskBytes: m.DiskBytes, Files: m.Files, MemoryBytes: m.MemoryBytes, Stalls: m.Stalls, Standbys: m.Standbys,
					StandbysNeeded: m.StandbysNeeded}}
			if s.o.Uploads != nil {
				u := s.o.Uploads()
				out.Backup = &api.Backup{LagMS: u.Lag.Milliseconds(), Objects: u.Objects, Bytes: u.Bytes}
				if u.Err != nil {
					out.Backup.Trouble = u.Err.Error()
				}
			}
			if trouble != nil {
				out.Trouble = trouble.Error()
			}

			for _, set := range caps.Settings {
				out.Settings = append(out.Settings, api.Setting(set))
			}

			return out, nil
		})
	declare(s, operation{id: "get-nodes", method: http.MethodGet, path: "/v1/nodes", role: auth.Read, tag: tag,
		summary: "Say which processes are one server, and which of them owns what",
		about:   "Each process answers what it sees itself. A server that is one process has none to name."},
		func(*call, *none) (api.Nodes, error) { // package nodes answers where there are several
			return api.Nodes{Nodes: []api.Node{}, Spaces: []api.Space{}, Clusters: []api.Cluster{}}, nil
		})
	declare(s, operation{id: "verify-server", method: http.MethodPost, path: "/v1/server/verify", role: auth.Admin,
		tag: tag, stream: true, heavy: true, summary: "Read every key, and check logs and tasks",
		about: "What the engine has checksums for is checked by them, with logtree also what no key needs now. " +
			"Writes go on meanwhile; the answer is about " +
			"one moment."},
		func(c *call, _ *none) (api.Verified, error) { return verify(c.ctx, c.data.Engine()) })

	compacting := make(chan struct{}, 1)
	declare(s, operation{id: "compact-server", method: http.MethodPost, path: "/v1/server/compact", role: auth.Admin,
		tag: tag, stream: true, heavy: true,
		summary: "Give back the space of what was deleted, where the engine does that when asked",
		about:   "Reads go on; writes may have to wait. One compaction is made at a time.",
		codes:   []string{api.CodeNotImplemented, api.CodeLocked, api.CodeFull}},
		func(c *call, _ *none) (none, error) {
			done, err := alone(compacting, "compact")
			if err != nil {
				return none{}, err
			}
			defer done()

			return none{}, holdfast.Compact(c.ctx, c.data.Engine(), holdfast.Range{})
		})
	s.backups()
}

// alone admits one operation at a time: the one in running, until it calls done.
func alone(running chan struct{}, op string) (done func(), err error) {
	select {
	case running <- struct{}{}:
		return func() { <-running }, nil
	default:
		return nil, &holdfast.Error{Op: op, Class: holdfast.ErrLocked, Detail: "it is going on already"}
	}
}

// verify reads everything in a snapshot of an engine.
func verify(ctx context.Context, engine holdfast.Engine) (out api.Verified, err error) {
	out.Problems = []string{}
	damage, err := holdfast.Verify(ctx, engine)
	switch {
	case ctx.Err() != nil:
		return out, ctx.Err()
	case err != nil && !errors.Is(err, holdfast.ErrUnavailable): // what can be read still tells something
		damage = append(damage, err)
	}

	for _, d := range damage {
		out.Problems = append(out.Problems, d.Error())
	}

	// The keys, the logs and the tasks are looked at in one snapshot, so what they say of each other belongs together.
	snapshot, err := engine.Snapshot()
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()

	it := snapshot.Scan(holdfast.Range{})
	defer it.Close()

	for it.Next() {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		out.Keys++
		out.Bytes += int64(len(it.Key()) + len(it.Value()))
	}
	// found classifies an error, and says whether to continue after it.
	found := func(err error) error {
		if !errors.Is(err, holdfast.ErrCorrupt) {
			return err
		}
		out.Problems = append(out.Problems, err.Error())

		return nil
	}
	if err := found(it.Err()); err != nil {
		return out, err
	}
	logs, err := event.Examine(snapshot)
	if err := found(err); err != nil {
		return out, err
	}

	for _, l := range logs {
		for _, gap := range l.Lost {
			out.Problems = append(
				out.Problems,
				fmt.Sprintf("log %q: events %d to %d are lost", l.Name, gap.Position, gap.Next-1),
			)
		}
		if l.Undescribed {
			out.Problems = append(out.Problems, fmt.Sprintf("log %q: its description is lost", l.Name))
		}
	}
	tasks, err := task.Examine(snapshot)
	if err := found(err); err != nil {
		return out, err
	}

	for _, t := range tasks {
		for _, p := range t.Problems {
			out.Problems = append(out.Problems, fmt.Sprintf("tasks %q: %s", t.Store, p))
		}
	}

	return out, nil
}

// backups declares the backup.
func (s *service) backups() {
	running := make(chan struct{}, 1)
	declareRaw(s, operation{id: "back-up", method: http.MethodGet, path: "/v1/server/backup", role: auth.Admin,
		tag: "server", stream: true, heavy: true, produces: "application/x-tar",
		summary: "A consistent copy of everything, as a tar of a directory that can be opened",
		about: "One backup is made at a time. It is first copied to a directory of the server, which must have " +
			"room for it, unless link is set: then it is a checkpoint, which shares files with the data. It is there at once, " +
			"the tar holds what is deleted and not given back yet too, and its values are not read before they are sent. " +
			"The answer is whole only if the tar is: its end is missing if it broke off.",
		codes: []string{api.CodeNotImplemented, api.CodeLocked, api.CodeFull}}, typeOf[none](),
		func(c *call, in *struct {
			Link bool `query:"link" doc:"Make it of hard links, on engines that can: logtree and Pebble."`
		}) error {
			if s.o.Backup == nil {
				return &holdfast.Error{Op: "backup", Class: holdfast.ErrUnavailable, Detail: "this server makes no backups"}
			}
			done, err := alone(running, "backup")
			if err != nil {
				return err
			}
			defer done()
			if at := s.o.BackupDir; at != "" && os.Mkdir(at, 0o700) == nil {
				defer os.Remove(at)
			}

			dir, err := os.MkdirTemp(s.o.BackupDir, "holdfast-backup-")
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) {
				return &holdfast.Error{Op: "backup", Class: holdfast.ErrUnavailable, Cause: err,
					Detail: "no directory for the copy can be made where the server makes its backups",
					Remedy: "let the server write there, or run holdfast backup while the server is stopped"}
			}
			if err != nil {
				return err
			}
			defer func() {
				if err := os.RemoveAll(dir); err != nil {
					s.o.Logger.Warn("a backup that was made for a client could not be removed", "error", err)
				}
			}()
			into := filepath.Join(dir, "copy")
			if in.Link {
				err = holdfast.Checkpoint(c.ctx, c.data.Engine(), into)
			} else {
				_, err = s.o.Backup(c.ctx, c.data.Engine(), into)
			}
			if err != nil {
				if errors.Is(err, holdfast.ErrBadOption) { // an engine that keeps nothing in a directory
					err = &holdfast.Error{Op: "backup", Class: holdfast.ErrUnavailable, Cause: err}
				}

				return err
			}
			c.w.Header().Set("Content-Disposition", `attachment; filename="holdfast-`+
				time.Now().UTC().Format("20060102-150405")+`.tar"`)

			return c.stream("application/x-tar", func(w io.Writer) error {
				t := tar.NewWriter(w)
				if err := t.AddFS(os.DirFS(into)); err != nil {
					return err // without the end of a tar
				}

				return t.Close()
			})
		})
}
