package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-isatty"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/server/tracing"
	"github.com/holdfastdb/holdfast/store/message"
)

// serveCommand's flags are also its settings in the environment (HOLDFAST_LOG_LEVEL) and in a file (log-level).
type serveCommand struct {
	Data   string     `help:"Data directory, created if needed. Default: holdfast-data." env:"HOLDFAST_DATA" placeholder:"DIR"`
	Engine engines    `help:"Engine and directory, instead of --data, as in pebble:DIR?sync-every=500ms. With --advertise more than once: clusters of PostgreSQL." env:"HOLDFAST_ENGINE" placeholder:"URL" sep:"none"`
	Listen string     `help:"Address to listen on." env:"HOLDFAST_LISTEN" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Token  string     `help:"Token for the default namespace if it has none yet. Default: a new one, which is printed." env:"HOLDFAST_TOKEN" placeholder:"TOKEN"`
	Level  string     `help:"What every write survives at least: memory, process, power, quorum. Default: the strongest that the engine gives." env:"HOLDFAST_LEVEL" placeholder:"LEVEL"`
	Config configFile `help:"Settings in YAML, named like the flags. Flags override the environment, and the environment the file." env:"HOLDFAST_CONFIG" placeholder:"FILE"`

	TLSCert  string `name:"tls-cert" help:"Certificate chain in PEM; reloaded when it changes, and on SIGHUP." env:"HOLDFAST_TLS_CERT" placeholder:"FILE"`
	TLSKey   string `name:"tls-key" help:"Private key in PEM." env:"HOLDFAST_TLS_KEY" placeholder:"FILE"`
	Insecure bool   `help:"Allow listening without TLS on addresses that other machines can reach." env:"HOLDFAST_INSECURE"`

	Advertise     string `help:"Address of this process for others that serve the same PostgreSQL, as http://10.0.0.2:8080; port 0 is the one listened on." env:"HOLDFAST_ADVERTISE" placeholder:"URL"`
	Spaces        int    `help:"Into how many parts the data in each cluster are divided, each owned by one process. More can be added later, not fewer." env:"HOLDFAST_SPACES" default:"1" placeholder:"N"`
	PeerTokenFile string `help:"File with the secret that these processes share. Or $$HOLDFAST_PEER_TOKEN." env:"HOLDFAST_PEER_TOKEN_FILE" placeholder:"FILE"`
	PeerCA        string `name:"peer-ca" help:"Certificates in PEM that vouch for those of the other processes. Default: the system's." env:"HOLDFAST_PEER_CA" placeholder:"FILE"`

	BackupEvery time.Duration `help:"How often a full copy is uploaded of an engine other than logtree, as 1h." env:"HOLDFAST_BACKUP_EVERY" placeholder:"TIME"`

	Backup string `help:"Back up all the time to this bucket: s3://BUCKET/PREFIX?region=REGION or file:///DIRECTORY." env:"HOLDFAST_BACKUP" placeholder:"URL"`

	BackupRecipients string `help:"Public keys of age (age1...), for which the backup is encrypted." env:"HOLDFAST_BACKUP_RECIPIENTS" placeholder:"KEY,..."`
	BackupCompress   bool   `help:"Compress what is uploaded, by zstd." env:"HOLDFAST_BACKUP_COMPRESS"`
	BackupKeep       string `help:"Which states stay there, as all=24h,hourly=48,daily=14,weekly=8; others are removed. Default: all." env:"HOLDFAST_BACKUP_KEEP" placeholder:"RULES"`

	BackupRate   int64         `help:"Maximum bytes per second of what is uploaded but for the newest writes, which are never held up; 0 for no limit." env:"HOLDFAST_BACKUP_RATE" default:"0" placeholder:"BYTES"`
	BackupVerify time.Duration `help:"Read and check everything in the bucket so often, as 168h; 0 for never." env:"HOLDFAST_BACKUP_VERIFY" default:"0" placeholder:"TIME"`

	MaxBody        int64         `help:"Maximum size of a request body." env:"HOLDFAST_MAX_BODY" default:"67108864" placeholder:"BYTES"`
	MaxConnections int           `help:"Maximum number of connections; more wait." env:"HOLDFAST_MAX_CONNECTIONS" default:"10000" placeholder:"N"`
	Rate           float64       `help:"Maximum requests per second per token; 0 for no limit." env:"HOLDFAST_RATE" default:"0" placeholder:"N"`
	Burst          int           `help:"Requests of one token in a burst. Default: one second's worth." env:"HOLDFAST_BURST" default:"0" placeholder:"N"`
	BodyTimeout    time.Duration `help:"Timeout for the body of a request." env:"HOLDFAST_BODY_TIMEOUT" default:"1m" placeholder:"TIME"`
	WriteTimeout   time.Duration `help:"Timeout for a client to read a part of an answer." env:"HOLDFAST_WRITE_TIMEOUT" default:"30s" placeholder:"TIME"`
	IdleTimeout    time.Duration `help:"Timeout for an idle connection." env:"HOLDFAST_IDLE_TIMEOUT" default:"2m" placeholder:"TIME"`
	QueryTime      time.Duration `help:"Maximum time of a query by SQL." env:"HOLDFAST_QUERY_TIME" default:"30s" placeholder:"TIME"`
	QueryRows      int64         `help:"Maximum rows of a query." env:"HOLDFAST_QUERY_ROWS" default:"1000000" placeholder:"N"`
	QueryMemory    int64         `help:"Maximum memory of SQLite for a query." env:"HOLDFAST_QUERY_MEMORY" default:"67108864" placeholder:"BYTES"`
	MaxQueries     int           `help:"Maximum number of queries at once; more wait. Default: half as many as processors, at least 2." env:"HOLDFAST_MAX_QUERIES" default:"0" placeholder:"N"`
	StopTimeout    time.Duration `help:"Time for requests to finish when the server stops." env:"HOLDFAST_STOP_TIMEOUT" default:"30s" placeholder:"TIME"`

	LogLevel  string `help:"Log level: debug (every request), info, warn, error. Reloaded on SIGHUP." env:"HOLDFAST_LOG_LEVEL" default:"info" placeholder:"LEVEL"`
	LogFormat string `help:"Log format: json, text, or auto (text on a terminal, else json)." env:"HOLDFAST_LOG_FORMAT" default:"auto" enum:"auto,json,text" placeholder:"FORMAT"`

	Pprof string `help:"Address for profiles of the process (/debug/pprof/), on this machine only. Default: none are served." env:"HOLDFAST_PPROF" placeholder:"HOST:PORT"`

	TestMode bool `help:"For testing programs: keep data in memory and allow everything to everybody. Listens on this machine only." env:"HOLDFAST_TEST_MODE"`

	PrintConfig bool `help:"Print the settings as YAML, without the token, and exit."`

	set map[string]string // where a file has set what it has set, by the names of flags
}

// engines are addresses of engines: one, or, where several processes share them, of clusters of PostgreSQL.
type engines []string

// shown is the addresses as they may be shown.
func (e engines) shown() string {
	var list []string
	for _, address := range e {
		list = append(list, all.Shown(address))
	}

	return strings.Join(list, ", ")
}

// MarshalYAML implements yaml's interface: most settings have one.
func (e engines) MarshalYAML() (any, error) {
	if len(e) > 1 {
		return []string(e), nil
	}

	return strings.Join(e, ""), nil
}

// Help implements kong's interface for what follows the flags.
func (serveCommand) Help() string {
	return `Without arguments the server keeps its data in ./holdfast-data, listens on this machine only, and prints, ` +
		`on its first start, a token that allows everything. Other addresses need TLS, or --insecure. On SIGTERM it ` +
		`finishes requests and followers, and ends. Its log goes to standard error and never contains tokens.`
}

// run serves until a signal ends it. With args, which were parsed into c, settings are read again on SIGHUP.
func (c *serveCommand) run(args []string) int {
	if c.PrintConfig {
		return fail(printConfig(os.Stdout, args))
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	err := c.serve(ctx, reload, args)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was to stop before it had begun to serve
	}

	return failTool(err)
}

// checkLimits refuses limits and times below 0: some would be taken for none, and others for the least there is.
func (c *serveCommand) checkLimits() error {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		below := false
		switch f := v.Field(i); {
		case f.CanInt():
			below = f.Int() < 0
		case f.CanFloat():
			below = !(f.Float() >= 0) // what is no number, neither
		}
		if below {
			env := strings.TrimPrefix(v.Type().Field(i).Tag.Get("env"), "HOLDFAST_")
			flag := strings.ReplaceAll(strings.ToLower(env), "_", "-")

			return c.bad(flag, fmt.Sprintf("%v is below 0", v.Field(i)), "leave it out for the default")
		}
	}

	return nil
}

// serve runs until ctx ends.
func (c *serveCommand) serve(ctx context.Context, reload <-chan os.Signal, args []string) (err error) {
	logLevel := new(slog.LevelVar)
	if err := c.setLogLevel(logLevel); err != nil {
		return err
	}
	logger := c.logger(os.Stderr, logLevel)
	// Whatever libraries log goes the same way.
	slog.SetDefault(logger)
	address, err := c.address()
	if err != nil {
		return err
	}
	if err := c.testMode(address); err != nil {
		return err
	}
	var certificate *certificate
	if c.TLSCert != "" || c.TLSKey != "" {
		if c.TLSCert == "" || c.TLSKey == "" {
			flag := "tls-cert"
			if c.TLSCert == "" {
				flag = "tls-key"
			}

			return c.bad(flag, "a certificate needs a key, and a key a certificate", "set --tls-cert and --tls-key")
		}
		if certificate, err = loadCertificate(c.TLSCert, c.TLSKey, logger); err != nil {
			return c.bad("tls-cert", err.Error(), "")
		}
	}
	// What is wrong with the settings is told before a directory is made.
	if err := c.checkLimits(); err != nil {
		return err
	}
	var level holdfast.Level
	if c.Level != "" {
		if level, err = holdfast.ParseLevel(c.Level); err != nil {
			return c.bad("level", fmt.Sprintf("%q is no level", c.Level), "use memory, process, power or quorum")
		}
	}
	if err := c.checkToken(); err != nil {
		return err
	}
	stopPprof, err := c.servePprof(logger)
	if err != nil {
		return err
	}
	defer stopPprof()
	if c.Backup == "" && (c.BackupKeep != "" || c.BackupEvery != 0 || c.BackupCompress || c.BackupRecipients != "" ||
		c.BackupRate != 0 || c.BackupVerify != 0) {
		return c.bad("backup", "it is not set, and others say how to back up", "set it")
	}
	care := upkeep{certificate: certificate, reload: reload, args: args, logLevel: logLevel, logger: logger}
	if c.Advertise != "" {
		if c.Backup != "" {
			return c.bad("backup", "the data is in PostgreSQL", "back that up")
		}

		return c.serveNode(ctx, address, level, &care)
	}
	if len(c.Engine) > 1 {
		return c.bad("engine", "one process alone has one", "set --advertise, too")
	}
	if c.Spaces != 1 {
		return c.bad("spaces", "one process alone has no use for them", "set --advertise, too")
	}
	opened, err := c.open(logger)
	if err != nil {
		return err
	}

	engine := metrics.Watch(opened)
	defer func() {
		if closed := engine.Close(); err == nil || !errors.Is(closed, holdfast.ErrPoisoned) { // which was told when it came
			err = errors.Join(err, closed)
		}
	}()
	var uploads func() metrics.Uploads
	if c.Backup != "" {
		var end func()
		if uploads, end, err = c.startBackup(ctx, opened, logger); err != nil {
			return err
		}
		defer end()
	}
	level = cmp.Or(level, engine.Capabilities().Strongest())
	d, err := data.Open(engine, data.Options{Level: level, Logger: logger})
	if err != nil {
		return c.notOpened(engine.Capabilities().Engine, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	o, stopTracing, err := c.options(ctx, &care)
	if err != nil {
		return err
	}
	defer stopTracing()
	o.Uploads = uploads
	s, err := server.New(d, o)
	if err != nil {
		return err
	}
	// The token comes after all that can fail, because it is shown only once.
	listener, err := net.ListenTCP("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	token, err := c.ownToken(ctx, d)
	if err != nil {
		return err
	}
	if err := c.welcome(os.Stdout, engine, level, listener.Addr(), token); err != nil {
		return err
	}

	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	logger.Info("serving", "address", listener.Addr().String(), "tls", certificate != nil,
		"engine", engine.Capabilities().Engine, "level", level.String())

	return care.run(ctx, served, c.StopTimeout, s.Stop)
}

// options are those of a server, which ends tracing with stop.
func (c *serveCommand) options(ctx context.Context, care *upkeep) (o server.Options, stop func(), err error) {
	version := readVersion().Version
	tracer, err := tracing.New(ctx, version)
	if err != nil {
		return o, nil, err
	}
	o = server.Options{Version: version, Tracer: tracer, Logger: care.logger, MaxBody: c.MaxBody,
		MaxConnections: c.MaxConnections, TestMode: c.TestMode, Rate: c.Rate, Burst: c.Burst, BodyTimeout: c.BodyTimeout,
		WriteTimeout: c.WriteTimeout, IdleTimeout: c.IdleTimeout, Backup: all.Backup, BackupDir: c.temp(),
		Query: query.Served{}, QueryTime: c.QueryTime, QueryRows: c.QueryRows, QueryMemory: c.QueryMemory,
		MaxQueries: c.MaxQueries}
	if care.certificate != nil {
		o.TLS = &tls.Config{GetCertificate: care.certificate.get}
	}

	return o, func() {
		sent, cancel := context.WithTimeout(context.Background(), traceTimeout)
		defer cancel()
		if err := tracer.Stop(sent); err != nil {
			care.logger.Warn("the last traces were not sent", "error", err.Error())
		}
	}, nil
}

// upkeep reads settings and certificates again while a server runs.
type upkeep struct {
	certificate *certificate
	reload      <-chan os.Signal
	args        []string
	logLevel    *slog.LevelVar
	logger      *slog.Logger
}

// run returns when the server has ended, or, when ctx has, has been stopped.
func (u *upkeep) run(ctx context.Context, served <-chan error, timeout time.Duration,
	stop func(context.Context) error) error {
	look := time.NewTicker(certificateEvery)
	defer look.Stop()

	for {
		select {
		case err := <-served:
			return err
		case <-look.C:
			u.certificate.check(false)
		case <-u.reload:
			u.certificate.check(true)
			if err := again(u.args, u.logLevel); err != nil {
				u.logger.Error("the settings were not read again, the old ones stay", "error", err.Error())
			} else {
				u.logger.Info("read again", "log-level", u.logLevel.Level().String())
			}
		case <-ctx.Done():
			u.logger.Info("stopping", "timeout", timeout.String())
			drain, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := stop(drain); errors.Is(err, context.DeadlineExceeded) {
				u.logger.Warn("requests were cut off", "timeout", timeout.String())
			} else if err != nil {
				return err
			}

			return nil
		}
	}
}

// again reads the settings again that can be changed while the server runs.
func again(args []string, logLevel *slog.LevelVar) error {
	var g grammar
	parser, err := newParser(&g, func(int) {})
	if err != nil {
		return err
	}
	if _, err := parser.Parse(joinNegative(args)); err != nil {
		return err
	}

	return g.Serve.setLogLevel(logLevel)
}

func (c *serveCommand) setLogLevel(v *slog.LevelVar) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return c.bad("log-level", fmt.Sprintf("%q is no level", c.LogLevel), "use debug, info, warn or error")
	}
	v.Set(level)

	return nil
}

func (c *serveCommand) logger(w *os.File, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "text" || c.LogFormat == "auto" && isatty.IsTerminal(w.Fd()) {
		return slog.New(slog.NewTextHandler(w, o))
	}

	return slog.New(slog.NewJSONHandler(w, o))
}

// bad is the error of a flag, or of the line in the file that has set it.
func (c *serveCommand) bad(flag, detail, remedy string) error {
	return &holdfast.Error{Op: c.where(flag), Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}

func (c *serveCommand) where(flag string) string {
	where := "serve: --" + flag
	if line := c.set[flag]; line != "" {
		where += ": " + line
	}

	return where
}

// address returns what to listen on, if that may be listened on.
func (c *serveCommand) address() (*net.TCPAddr, error) {
	address, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return nil, c.bad("listen", err.Error(), "write it as 127.0.0.1:8080")
	}
	if !address.IP.IsLoopback() && c.TLSCert == "" && !c.Insecure {
		return nil, c.bad("listen", fmt.Sprintf("without TLS, tokens could be read on the way to %s", c.Listen),
			"set --tls-cert and --tls-key, listen on 127.0.0.1, or allow it: --insecure")
	}

	return address, nil
}

// testMode makes the engine one in memory in test mode, if that is safe.
func (c *serveCommand) testMode(address *net.TCPAddr) error {
	switch {
	case !c.TestMode:
		return nil
	case !address.IP.IsLoopback():
		return c.bad("test-mode", fmt.Sprintf("everybody who reaches %s could do everything", c.Listen),
			"listen on 127.0.0.1")
	case c.Data != "" || len(c.Engine) > 0:
		return c.bad("test-mode", "it keeps its data in memory, and --data or --engine is set too", "set one of them")
	}
	c.Engine = engines{"mem:"}

	return nil
}

// dir is where the data is, "" where it is in no directory.
func (c *serveCommand) dir() string {
	if len(c.Engine) == 0 {
		return cmp.Or(c.Data, defaultData)
	}
	name, dir, _, _ := all.ParseURL(c.Engine[0]) // its error is that of open
	if all.OnServer(name) {
		return ""
	}

	return dir
}

// temp is where backups are made: on the file system of the data, where files can be shared, and with their room. What
// a killed server has left there is removed by the next one.
func (c *serveCommand) temp() string {
	if c.dir() == "" {
		return ""
	}

	return datadir.Temp(c.dir())
}

// open opens the engine.
func (c *serveCommand) open(logger *slog.Logger) (holdfast.Engine, error) {
	if len(c.Engine) == 0 {
		dir := cmp.Or(c.Data, defaultData)
		if name, _, _, _ := all.ParseURL(dir); all.OnServer(name) {
			return nil, c.bad("data", "it is a space of a server, and no directory", "name it with --engine")
		}
		// The messages of engines are for those who look into them.
		o := holdfast.Options{Logger: quiet(logger)}
		e, err := all.OpenDir("", dir, o)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, holdfast.ErrForeign) {
			return all.Open(all.Default, dir, o) // which says what is wrong with a directory of something else
		}

		return e, err
	}
	if c.Data != "" {
		return nil, c.bad("engine", "--data, or HOLDFAST_DATA, is set too", "set one of them")
	}
	name, dir, o, err := all.ParseURL(c.Engine[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.where("engine"), err)
	}
	o.Logger = quiet(logger)

	return all.Open(name, dir, o)
}

// notOpened is the error when an engine is open and the stores in it cannot be opened. One that has stopped for want of
// room, as all but logtree do, says what that means for whoever uses it; nobody does yet.
func (c *serveCommand) notOpened(engine string, err error) error {
	if errors.Is(err, holdfast.ErrPoisoned) && datadir.NoRoom(err) {
		return &holdfast.Error{Op: "serve", Engine: engine, Path: c.dir(), Class: holdfast.ErrFull,
			Detail: "on this engine a server needs some to start; nothing is lost", Remedy: datadir.MakeRoom}
	}

	return err
}

const defaultData = "holdfast-data"

// traceTimeout is how long the last traces may take when the server has stopped.
const traceTimeout = 5 * time.Second

// quiet returns a logger that passes on warnings and errors only.
func quiet(l *slog.Logger) *slog.Logger { return slog.New(atLeastWarn{l.Handler()}) }

type atLeastWarn struct{ slog.Handler }

func (h atLeastWarn) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}
func (h atLeastWarn) WithAttrs(a []slog.Attr) slog.Handler {
	return atLeastWarn{h.Handler.WithAttrs(a)}
}
func (h atLeastWarn) WithGroup(name string) slog.Handler {
	return atLeastWarn{h.Handler.WithGroup(name)}
}

// checkToken says what is wrong with the token that was set.
func (c *serveCommand) checkToken() error {
	if c.Token == "" {
		return nil
	}
	if s, err := auth.Parse(c.Token); err != nil || s.Namespace != message.Default {
		return c.bad("token", "it is not a token of the default namespace",
			"it has the form ns_ZGVmYXVsdA_ and 64 hexadecimal digits")
	}

	return nil
}

// ownToken gives the default namespace a token if it has none. It returns one line about it for people.
func (c *serveCommand) ownToken(ctx context.Context, d *data.Data) (string, error) {
	has, err := d.Tokens().HasOwn(ctx, message.Default)
	if err != nil {
		return "", err
	}
	if !has {
		token, text := c.Token, "the one that was set with --token"
		if token == "" {
			token = auth.NewNamespaceSecret(message.Default)
			text = token + "\nIt allows everything, and is not shown again."
		}

		return text, d.Tokens().SetOwn(ctx, message.Default, token)
	}

	lost := "the one that was shown when the data was made; if it is lost, stop the server: holdfast token reset DIR"
	if c.Token == "" {
		return lost, nil
	}
	switch _, err := d.Tokens().Check(ctx, c.Token); {
	case err == nil:
		return "the one that was set with --token", nil
	case !errors.Is(err, auth.ErrUnknown):
		return "", err
	}
	slog.Warn("the default namespace has another token than --token, and keeps it",
		"remedy", "stop the server and change it: holdfast token reset DIR")

	return "not that of --token, but " + lost, nil
}

// welcome tells people where the server is. The address is the first thing on its line, for scripts.
func (c *serveCommand) welcome(out io.Writer, e holdfast.Engine, level holdfast.Level, at net.Addr,
	token string) error {
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	where := cmp.Or(c.Engine.shown(), c.Data, defaultData)
	if len(c.Engine) == 0 {
		where = e.Capabilities().Engine + " in " + where
	}
	first, more, _ := strings.Cut(token, "\n")
	p := newPage(out)
	p.line("address\t%s://%s", scheme, at)
	p.line("page\t%s://%s/", scheme, at)
	p.line("data\t%s; a write %s", where, level.Survives())
	p.line("token\t%s", first)
	if more != "" {
		p.line("\t%s", more)
	}

	return p.end()
}

type readyCommand struct {
	URL string `arg:"" name:"url" optional:"" help:"URL of the server. Default: $$HOLDFAST_URL, or else http://127.0.0.1:8080."`
}

func (c *readyCommand) run() int {
	ctx, stop := interruptible()
	defer stop()
	server, err := client.New(cmp.Or(c.URL, os.Getenv("HOLDFAST_URL"), "http://127.0.0.1:8080"), client.Options{})
	if err == nil {
		err = server.Ready(ctx)
	}
	if err == nil {
		_, err = fmt.Println("ready")
	}

	return failTool(err)
}

type tokenResetCommand struct {
	Dir   string `arg:"" help:"A server's data directory."`
	Token string `help:"The new token. Default: a random one, which is printed." placeholder:"TOKEN"`
}

func (c *tokenResetCommand) run() int {
	token := cmp.Or(c.Token, auth.NewNamespaceSecret(message.Default))
	if err := c.reset(token); err != nil {
		return failTool(err)
	}
	if c.Token == "" {
		if _, err := fmt.Println(token); err != nil { // nobody has the token: the next reset makes another one
			return fail(err)
		}
	}
	fmt.Fprintln(os.Stderr, "holdfast: this is the default namespace's new token; the old one is invalid")

	return exitOK
}

func (c *tokenResetCommand) reset(token string) (err error) {
	if s, err := auth.Parse(token); err != nil || s.Namespace != message.Default {
		return &holdfast.Error{Op: "token reset", Class: holdfast.ErrBadOption,
			Detail: "it is not a token of the default namespace",
			Remedy: "it has the form ns_ZGVmYXVsdA_ and 64 hexadecimal digits"}
	}
	name, dir, o, err := parseDir(c.Dir)
	if err != nil {
		return err
	}
	e, err := all.OpenDir(name, dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	d, err := data.Open(e, data.Options{Level: e.Capabilities().Strongest()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	return d.Tokens().SetOwn(context.Background(), message.Default, token)
}
