package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"gocloud.dev/blob"
	_ "gocloud.dev/blob/fileblob" // buckets that are directories
	_ "gocloud.dev/blob/s3blob"   // buckets of S3 and what speaks as it does

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

type restoreCommand struct {
	URL        string    `arg:"" name:"url" help:"Bucket: s3://BUCKET/PREFIX?region=REGION or file:///DIRECTORY." placeholder:"URL"`
	Into       string    `required:"" help:"New directory." placeholder:"DIR"`
	At         time.Time `help:"The last state that is not younger than this. Default: the last one." placeholder:"2026-11-27T18:00:00Z"`
	Generation string    `help:"Of this generation, as restore and the log of serve name them. Default: the last one that has such a state." placeholder:"NAME"`
	AtPosition *uint64   `help:"The state right before the message at this position of the namespace was written, or the event of --log. With the room of two copies, if it is a message." placeholder:"N"`
	Namespace  string    `short:"n" help:"Namespace of --at-position." default:"default" placeholder:"NS"`
	Log        string    `help:"Event log of --at-position." placeholder:"NAME"`
	Identity   string    `help:"File with the key, as age-keygen makes it, if the backup is encrypted." placeholder:"FILE"`
	JSON       bool      `name:"json" help:"Print the result as JSON."`
}

// isBucket reports whether a place is a bucket's URL.
func isBucket(place string) bool {
	scheme, _, ok := strings.Cut(place, "://")
	return ok && blob.DefaultURLMux().ValidBucketScheme(scheme)
}

// inBucket calls f with the bucket of a URL.
func inBucket[T any](address string, f func(context.Context, *blob.Bucket) (T, error)) (T, error) {
	return untilSignal(func(ctx context.Context) (result T, err error) {
		bucket, err := backup.OpenBucket(ctx, address)
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, bucket.Close()) }()

		return f(ctx, bucket)
	})
}

// identitiesOf reads the file of --identity, if one is named.
func identitiesOf(op, file string) (list []age.Identity, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		list, err = age.ParseIdentities(bytes.NewReader(text))
	}
	if err != nil {
		err = &holdfast.Error{Op: op + ": --identity", Path: file, Class: holdfast.ErrBadOption, Cause: err}
	}

	return list, err
}

func (c *restoreCommand) run() int {
	o := backup.RestoreOptions{At: c.At, Generation: c.Generation, Fill: fillCopy}
	var err error
	if o.Identities, err = identitiesOf("restore", c.Identity); err != nil {
		return failTool(err)
	}
	switch {
	case c.AtPosition != nil && *c.AtPosition == 0:
		return failTool(&holdfast.Error{Op: "restore", Class: holdfast.ErrBadOption,
			Detail: "--at-position 0: positions begin at 1", Remedy: "leave it out to restore the last state"})
	case c.AtPosition != nil && !c.At.IsZero():
		return failTool(&holdfast.Error{Op: "restore", Class: holdfast.ErrBadOption,
			Detail: "--at and --at-position are both given", Remedy: "give one of them"})
	case c.AtPosition == nil && (c.Log != "" || c.Namespace != message.Default):
		return failTool(&holdfast.Error{Op: "restore", Class: holdfast.ErrBadOption,
			Detail: "a log or namespace, and no position in it", Remedy: "add --at-position"})
	}
	r, err := inBucket(c.URL, func(ctx context.Context, bucket *blob.Bucket) (*backup.Restored, error) {
		if c.AtPosition != nil {
			log, err := c.logOf(ctx, bucket, o)
			if err != nil {
				return nil, err
			}
			o.Before = event.Appends(log, *c.AtPosition)
		}

		return backup.Restore(ctx, bucket, c.Into, o)
	})
	if err != nil {
		return failTool(err)
	}
	warnBaseless(r.Baseless)
	at := r.Time.UTC().Format(time.RFC3339Nano)
	if c.JSON {
		return toolResult{How: "every object's checksum", Into: c.Into, Bytes: &r.Bytes,
			Counts: map[string]any{"files": r.Files, "time": at, "generation": r.Generation, "kept": r.Kept,
				"baseless": len(r.Baseless)}}.write(exitOK)
	}
	p := newPage(os.Stdout)
	p.line("restored\t%s", c.Into)
	p.line("state of\t%s", at)
	p.line("generation\t%s", r.Generation)
	p.line("read\t%d files, %s", r.Files, size(r.Bytes))
	if r.Kept > 0 {
		p.line("there already\t%s, checked", size(r.Kept))
	}

	return failTool(p.end())
}

// warnBaseless says what a state from a bucket does not have.
func warnBaseless(generations []string) {
	for _, gen := range generations {
		fmt.Fprintf(os.Stderr, "holdfast: warning: what was written since generation %s began is not there: it has no "+
			"base, which was never whole, or was removed\n", gen)
	}
}

// logOf is what the log of --at-position is called in the engine. The log of a namespace's messages has its number,
// which only the database knows: so the last state of it is restored for a moment.
func (c *restoreCommand) logOf(ctx context.Context, bucket *blob.Bucket, o backup.RestoreOptions) (log string,
	err error) {
	if c.Log != "" {
		return data.EngineLog(c.Namespace, c.Log), nil
	}
	into, err := filepath.Abs(c.Into)
	if err == nil {
		err = datadir.MkdirAll(filepath.Dir(into))
	}
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(into), "holdfast-restore-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	last := filepath.Join(temp, "last")
	if _, err := backup.Restore(ctx, bucket, last, o); err != nil {
		return "", err
	}
	e, err := all.OpenDir("", last, holdfast.Options{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, e.Close()) }()

	return message.LogOf(e, "", c.Namespace)
}

// fillCopy makes the directory of a copy in a bucket.
func fillCopy(ctx context.Context, c backup.Copy, dir string, fill func(func(key, value []byte) error) error) error {
	return all.Fill(ctx, c.Engine, c.Level, datadir.Loss{Lost: c.Lost, Accepted: c.Accepted}, dir, fill)
}

// verifyBucket is verify of a bucket.
func (c *verifyCommand) verifyBucket() int {
	v, err := inBucket(c.Dir, backup.Verify)
	if err != nil {
		return failTool(err)
	}
	if v.Bases == 0 && len(v.Damage) == 0 {
		return failTool(&holdfast.Error{Op: "verify", Path: c.Dir, Class: holdfast.ErrNotFound,
			Detail: "there is no state in the bucket", Remedy: "is it the right bucket and prefix?"})
	}
	status := exitOK
	for _, d := range v.Damage {
		if !c.JSON {
			fmt.Fprintln(os.Stderr, "damage:", shown(d))
		}
		if status != exitWrong {
			status = exitError
		}
		if errors.Is(d, holdfast.ErrCorrupt) {
			status = exitWrong
		}
	}
	if c.JSON {
		checked := true
		return toolResult{How: "every object's checksum", Checksums: &checked, Bytes: &v.Bytes, Damage: texts(v.Damage),
			Counts: map[string]any{"generations": v.Generations, "baseless": len(v.Baseless), "bases": v.Bases,
				"objects": v.Objects}}.write(status)
	}
	p := newPage(os.Stdout)
	p.line("checked\tevery object's checksum, and that none is missing")
	p.line("generations\t%d, with %d bases", v.Generations, v.Bases)
	for _, gen := range v.Baseless {
		p.line("without base\t%s: of it nothing can be restored", gen)
	}
	p.line("objects\t%d, %s", v.Objects, size(v.Bytes))
	if v.Bases > 0 {
		p.line("states\t%s to %s", v.First.UTC().Format(time.RFC3339), v.Last.UTC().Format(time.RFC3339))
	}
	p.line("damage\t%d", len(v.Damage))
	if err := p.end(); err != nil {
		return fail(err)
	}

	return status
}

// startBackup begins the backup of a server's engine. end ends it, before the engine is closed.
func (c *serveCommand) startBackup(ctx context.Context, e holdfast.Engine, logger *slog.Logger) (
	uploads func() metrics.Uploads, end func(), err error,
) {
	o := backup.Options{Logger: logger, Compress: c.BackupCompress, CopyEvery: c.BackupEvery, CopyDir: c.temp(),
		Recipients: strings.FieldsFunc(c.BackupRecipients, func(r rune) bool { return r == ',' || r == ' ' })}
	if o.Rate, o.VerifyEvery = c.BackupRate, c.BackupVerify; o.Rate != 0 && o.Rate < backup.LeastRate {
		return nil, nil, c.bad("backup-rate", fmt.Sprintf("%d is too little", o.Rate),
			fmt.Sprintf("the least is %d", backup.LeastRate))
	}
	if o.VerifyEvery < 0 {
		return nil, nil, c.bad("backup-verify", "it is negative", "set a time, as 168h")
	}
	if c.BackupKeep != "" {
		if o.Keep, err = backup.ParseKeep(c.BackupKeep); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.where("backup-keep"), err)
		}
	}
	switch caps := e.Capabilities(); {
	case caps.Engine == logtree.Name && c.BackupEvery != 0:
		return nil, nil, c.bad("backup-every", "the log of logtree is uploaded every second", "leave it out")
	case caps.Strongest() <= holdfast.Memory:
		return nil, nil, c.bad("backup", "this engine keeps nothing", "use another one")
	case caps.Engine != logtree.Name && c.BackupEvery <= 0:
		return nil, nil, c.bad("backup", "this engine can only be copied as a whole, from time to time",
			"say how often: --backup-every 1h")
	}
	if into := backup.Directory(c.Backup); into != "" {
		if err := datadir.CheckOverlap("back up", into, c.dir()); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.where("backup"), err)
		}
	}
	bucket, err := backup.MakeBucket(ctx, c.Backup)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.where("backup"), err)
	}
	b, err := backup.Start(e, bucket, o)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", c.where("backup"), err), bucket.Close())
	}
	logger.Info("backing up", "url", passwords.ReplaceAllString(c.Backup, "://"))
	if into := backup.Directory(c.Backup); into != "" && c.dir() != "" && datadir.SameFileSystem(into, c.dir()) {
		logger.Warn("the backup is on the same file system as the data: who loses that loses both", "backup", into,
			"data", c.dir())
	}

	uploads = func() metrics.Uploads {
		s := b.Status()
		return metrics.Uploads{Lag: s.Lag(), Every: c.BackupEvery, Err: s.Err, Objects: s.Objects, Bytes: s.Bytes,
			VerifyEvery: o.VerifyEvery, Verified: s.Verified, Damage: s.Damage}
	}

	return uploads, func() {
		ctx, cancel := context.WithTimeout(context.Background(), c.StopTimeout)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			logger.Error("the backup has not all that was written", "error", shown(err), "safe", b.Status().Safe.String())
		}
		if err := bucket.Close(); err != nil {
			logger.Warn("closing the bucket", "error", shown(err))
		}
	}, nil
}
