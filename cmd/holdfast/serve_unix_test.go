//go:build unix

package main

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// process is a server in a process of its own.
type process struct {
	t       *testing.T
	cmd     *exec.Cmd
	url     string
	shown   string // on standard output
	log     *lockedBuffer
	token   string
	client  *http.Client
	stopped bool
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// serve starts a server and waits until it says where it is.
func serve(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: holdfastCommand(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...),
		log: new(lockedBuffer), client: &http.Client{Transport: &http.Transport{}}}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	try(t, err)
	try(t, p.cmd.Start())
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		if !p.stopped {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	in := bufio.NewScanner(out)
	for in.Scan() && !strings.HasPrefix(in.Text(), "token") {
		p.shown += in.Text() + "\n"
	}
	p.shown += in.Text() + "\n"
	p.url = regexp.MustCompile(`https?://[0-9.:]+`).FindString(p.shown)
	p.token = regexp.MustCompile(`ns_\w+`).FindString(p.shown)
	if p.url == "" {
		t.Fatalf("the server has not told its address: %s; log: %s", p.shown, p.log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p
}

func (p *process) rpc(token, call string) (int, string) {
	p.t.Helper()
	req, err := http.NewRequest("POST", p.url+"/rpc", strings.NewReader(call))
	try(p.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := p.client.Do(req)
	try(p.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	try(p.t, err)
	return res.StatusCode, string(b)
}

// stop ends the server by a signal. It must have ended well.
func (p *process) stop(s os.Signal) {
	p.t.Helper()
	try(p.t, p.cmd.Process.Signal(s))
	p.stopped = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Fatalf("%v: %s", err, p.log)
	}
}

func (p *process) eventually(what string, ok func() bool) {
	p.t.Helper()
	testkit.Until(p.t, what, ok, p.log)
}

// A server shows its token once, keeps what was written, and ends well. Its operator can get in again.
func TestServe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := serve(t, nil, "--data", dir, "--log-level", "debug")
	if first.token == "" {
		t.Fatal(first.shown)
	}
	if status, body := first.rpc(first.token, `["stream.write","a-1",{"type":"T","data":{}}]`); status != 200 {
		t.Fatal(status, body)
	}
	status, _, text := result(t, holdfastCommand(t, "serve", "--data", dir, "--listen", "127.0.0.1:0"))
	if status != exitError || !strings.Contains(text, "in use") {
		t.Errorf("a second server: %d %s", status, text)
	}
	if status, _, text := result(t, holdfastCommand(t, "token", "reset", dir)); status != exitError ||
		!strings.Contains(text, "in use") {
		t.Errorf("token reset beside a server: %d %s", status, text)
	}
	first.stop(syscall.SIGTERM)
	if strings.Contains(first.log.String(), first.token[len(first.token)-64:]) ||
		!strings.Contains(first.log.String(), `"/rpc"`) {
		t.Errorf("log: %s", first.log)
	}

	other := "ns_ZGVmYXVsdA_" + strings.Repeat("0", 64)
	second := serve(t, []string{"HOLDFAST_TOKEN=" + other}, "--data", dir)
	if second.token != "" || !strings.Contains(second.shown, "token reset") {
		t.Errorf("shown again: %s", second.shown)
	}
	second.eventually("warned", func() bool { return strings.Contains(second.log.String(), "keeps it") })
	if status, _ := second.rpc(other, `["stream.get","a-1"]`); status != 403 {
		t.Errorf("another token: %d", status)
	}
	if status, body := second.rpc(first.token, `["stream.get","a-1"]`); status != 200 || !strings.Contains(body, `"T"`) {
		t.Errorf("%d %s", status, body)
	}
	second.stop(os.Interrupt)
	if strings.Contains(second.log.String(), strings.Repeat("0", 64)) {
		t.Errorf("log: %s", second.log)
	}

	status, out, text := result(t, holdfastCommand(t, "token", "reset", dir))
	if status != exitOK {
		t.Fatal(status, text)
	}
	third := serve(t, nil, "--data", dir)
	if status, _ := third.rpc(strings.TrimSpace(out), `["stream.get","a-1"]`); status != 200 {
		t.Errorf("the new token: %d", status)
	}
	if status, _ := third.rpc(first.token, `["stream.get","a-1"]`); status != 403 {
		t.Errorf("the old token: %d", status)
	}
	third.stop(syscall.SIGTERM)
}

// A follower is told that the server stops, before it does.
func TestServeEndsFollowers(t *testing.T) {
	p := serve(t, nil, "--engine", "mem:")
	req, err := http.NewRequest("GET", p.url+"/v1/namespaces/default/messages/follow?stream=a-1", nil)
	try(t, err)
	req.Header.Set("Authorization", "Bearer "+p.token)
	res, err := p.client.Do(req)
	try(t, err)
	defer res.Body.Close()
	if status, body := p.rpc(p.token, `["stream.write","a-1",{"type":"T","data":{}}]`); status != 200 {
		t.Fatal(status, body)
	}
	in := bufio.NewScanner(res.Body)
	for in.Scan() && !strings.HasPrefix(in.Text(), "data:") {
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop(syscall.SIGTERM)
	}()
	rest := ""
	for in.Scan() {
		rest += in.Text() + "\n"
	}
	<-stopped
	if in.Err() != nil || !strings.Contains(rest, "event: bye") {
		t.Errorf("%v: %s", in.Err(), rest)
	}
}

// writeCertificate makes a certificate for 127.0.0.1 with that serial number.
func writeCertificate(t *testing.T, chain, key string, serial int64) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	try(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	try(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	try(t, err)
	for name, block := range map[string]*pem.Block{chain: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY",
		Bytes: private}} {
		// A new file each time, as those who renew certificates make it.
		try(t, os.WriteFile(name+".new", pem.EncodeToMemory(block), 0o600))
		try(t, os.Rename(name+".new", name))
	}
}

// A certificate is read again on SIGHUP; one that cannot be used does not replace the old one.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	chain, key := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, chain, key, 1)
	p := serve(t, nil, "--engine", "mem:", "--tls-cert", chain, "--tls-key", key)
	serial := func() int64 {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is looked at here
		defer client.CloseIdleConnections()
		res, err := client.Get(p.url + "/health")
		try(t, err)
		defer res.Body.Close()
		if res.ProtoMajor != 2 || res.StatusCode != 200 {
			t.Errorf("%s %s", res.Proto, res.Status)
		}
		return res.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Fatal(n)
	}
	writeCertificate(t, chain, key, 2)
	try(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.eventually("read again", func() bool { return serial() == 2 })
	try(t, os.WriteFile(chain, []byte("nothing"), 0o600))
	try(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.eventually("complained", func() bool { return strings.Contains(p.log.String(), "the old one stays") })
	if n := serial(); n != 2 {
		t.Fatal(n)
	}
	p.stop(syscall.SIGTERM)
}

// A certificate is also read again when one of its files has changed, and only then.
func TestCertificateChanges(t *testing.T) {
	dir := t.TempDir()
	chain, key := filepath.Join(dir, "chain.pem"), filepath.Join(dir, "key.pem")
	writeCertificate(t, chain, key, 1)
	c, err := loadCertificate(chain, key, slog.New(slog.DiscardHandler))
	try(t, err)
	was := c.now.Load()
	c.check(false)
	if c.now.Load() != was {
		t.Error("read again without a change")
	}
	writeCertificate(t, chain, key, 2)
	c.check(false)
	if n := c.now.Load().Leaf.SerialNumber.Int64(); n != 2 {
		t.Error(n)
	}
	try(t, os.Remove(key))
	c.check(false)
	if n := c.now.Load().Leaf.SerialNumber.Int64(); n != 2 {
		t.Error(n)
	}
	writeCertificate(t, chain, key, 3)
	c.check(false)
	if n := c.now.Load().Leaf.SerialNumber.Int64(); n != 3 {
		t.Error(n)
	}
}

// Flags go before the environment, that before the file, and that before defaults. What is printed is such a file.
func TestServeSettings(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	try(
		t,
		os.WriteFile(
			file,
			[]byte("rate: 1\nburst: 1\nlevel: process\nstop-timeout: 5s\ninsecure: true\ntoken: secret\n"),
			0o600,
		),
	)
	print := func(env []string, args ...string) string {
		t.Helper()
		cmd := holdfastCommand(t, append([]string{"serve", "--print-config"}, args...)...)
		cmd.Env = append(cmd.Env, env...)
		status, out, text := result(t, cmd)
		if status != exitOK || strings.Contains(out, "secret") {
			t.Fatal(status, out, text)
		}
		return out
	}
	for _, c := range []struct {
		env, args []string
	}{
		{[]string{"HOLDFAST_RATE=2", "HOLDFAST_BURST=2"}, []string{"--config", file, "--burst", "3"}},
		{[]string{"HOLDFAST_RATE=2", "HOLDFAST_BURST=2", "HOLDFAST_CONFIG=" + file}, []string{"--burst", "3"}},
	} {
		out := print(c.env, c.args...)
		for _, line := range []string{"rate: 2", "burst: 3", "level: process", "stop-timeout: 5s", "insecure: true",
			"log-level: info",
			"listen: 127.0.0.1:8080"} {
			if !strings.Contains("\n"+out, "\n"+line+"\n") {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
		again := filepath.Join(dir, "again.yaml")
		try(t, os.WriteFile(again, []byte(out), 0o600))
		if print(nil, "--config", again) != out {
			t.Errorf("what was printed is not what is read")
		}
	}

	// Engines are a list in each place; commas are parts of addresses.
	list := "engine:\n    - postgres://a@h1,h2/x\n    - postgres://b@h3/x\n"
	try(t, os.WriteFile(file, []byte("engine: [\"postgres://a@h1,h2/x\", postgres://b@h3/x]\n"), 0o600))
	for _, c := range []struct {
		env, args []string
		want      string
	}{
		{nil, []string{"--config", file}, list},
		{nil, []string{"--engine", "postgres://a@h1,h2/x", "--engine", "postgres://b@h3/x"}, list},
		{[]string{"HOLDFAST_ENGINE=postgres://c/x"}, []string{"--config", file}, "engine: postgres://c/x\n"},
		{[]string{"HOLDFAST_ENGINE=postgres://c/x"}, []string{"--config", file, "--engine", "mem:"}, "engine: 'mem:'\n"},
	} {
		if out := print(c.env, c.args...); !strings.Contains("\n"+out, "\n"+c.want) {
			t.Errorf("%v %v: no %q in\n%s", c.env, c.args, c.want, out)
		}
	}
	try(t, os.WriteFile(file, []byte("listen: [a, b]\n"), 0o600))
	if status, _, text := result(t, holdfastCommand(t, "serve", "--config", file)); status == exitOK ||
		!strings.Contains(text, "not one value") {
		t.Error(status, text)
	}
}

// A log level that is changed in the file holds after SIGHUP.
func TestServeReadsAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	try(t, os.WriteFile(file, []byte("log-level: info\n"), 0o600))
	p := serve(t, nil, "--engine", "mem:", "--config", file)
	p.rpc(p.token, `["sys.version"]`)
	try(t, os.WriteFile(file, []byte("log-level: [\n"), 0o600))
	try(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.eventually("complained", func() bool { return strings.Contains(p.log.String(), "the old ones stay") })
	if strings.Contains(p.log.String(), `"/rpc"`) {
		t.Error("a request is logged at info")
	}
	try(t, os.WriteFile(file, []byte("log-level: debug\n"), 0o600))
	try(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.eventually("read again", func() bool { return strings.Contains(p.log.String(), `"log-level":"DEBUG"`) })
	p.rpc(p.token, `["sys.version"]`)
	p.eventually("logged", func() bool { return strings.Contains(p.log.String(), `"/rpc"`) })
	p.stop(syscall.SIGTERM)
}

// Profiles are served if that was asked for, and not where clients are served. The command line is none of them.
func TestServePprof(t *testing.T) {
	p := serve(t, nil, "--engine", "mem:", "--pprof", "127.0.0.1:0", "--log-format", "text")
	at := regexp.MustCompile(`serving profiles" address=(\S+)`).FindStringSubmatch(p.log.String())
	if at == nil {
		t.Fatal(p.log)
	}
	for url, want := range map[string]int{
		"http://" + at[1] + "/debug/pprof/":                  http.StatusOK,
		"http://" + at[1] + "/debug/pprof/heap?debug=1":      http.StatusOK,
		"http://" + at[1] + "/debug/pprof/profile?seconds=1": http.StatusOK,
		"http://" + at[1] + "/debug/pprof/cmdline":           http.StatusNotFound,
		"http://" + at[1] + "/v1/server":                     http.StatusNotFound,
		p.url + "/debug/pprof/heap":                          http.StatusNotFound,
	} {
		a, err := p.client.Get(url)
		try(t, err)
		_, _ = io.Copy(io.Discard, a.Body)
		if try(t, a.Body.Close()); a.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, a.Status, want)
		}
	}
	p.stop(syscall.SIGTERM)
}

// In test mode everybody is let in, and namespaces are made by those who come with a token of one. Nothing is kept.
func TestServeTestMode(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	p := serve(t, nil, "--test-mode")
	want := func(token, call, answer string) {
		t.Helper()
		if status, got := p.rpc(token, call); status != http.StatusOK || !strings.HasPrefix(got, answer) {
			t.Errorf("%s: %d %s, want %s", call, status, got, answer)
		}
	}
	one, other := "ns_b25l_"+strings.Repeat("ab", 32), "ns_b25l_"+strings.Repeat("cd", 32) // both of the namespace one
	want("", `["stream.write","a-1",{"type":"T","data":{}}]`, `{"position":0`)
	want("nonsense", `["stream.version","a-1"]`, "0")
	want(one, `["stream.version","a-1"]`, "null")
	want(one, `["stream.write","a-1",{"type":"T","data":{}}]`, `{"position":0`)
	want(other, `["stream.version","a-1"]`, "0")
	want("", `["ns.create","two"]`, `{"namespace":"two"`)
	if status, got := p.rpc(one, `["ns.list"]`); status != http.StatusForbidden {
		t.Error(status, got)
	}
	p.stop(syscall.SIGTERM)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	// Nobody is let in without.
	p = serve(t, nil, "--engine", "mem:")
	if status, got := p.rpc(one, `["stream.version","a-1"]`); status != http.StatusForbidden {
		t.Error(status, got)
	}
}

// Settings that make no sense, or are not safe, are refused before anything is made.
func TestServeRefuses(t *testing.T) {
	dir, anew := t.TempDir(), filepath.Join(t.TempDir(), "anew")
	try(t, os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("rate: 1\nnothing: 2\n"), 0o600))
	try(t, os.WriteFile(filepath.Join(dir, "list.yaml"), []byte("rate: [1]\n"), 0o600))
	value := func(line string) (args string) {
		name := filepath.Join(dir, strings.Fields(line)[1]+".yaml")
		try(t, os.WriteFile(name, []byte("# settings\n"+line+"\n"), 0o600))
		return "--config " + name
	}
	t.Setenv("HOLDFAST_DATA", "x")                  // is not passed on
	secret := "ns_b25l_" + strings.Repeat("ab", 32) // of the namespace one
	for _, c := range []struct{ args, text string }{
		{"--listen :0", "--insecure"},
		{"--listen 0.0.0.0:0", "--insecure"},
		{"--listen nowhere", "127.0.0.1:8080"},
		{"--tls-cert x --listen 127.0.0.1:0", "--tls-key"},
		{"--tls-cert x --tls-key y", "no such file"},
		{"--engine files:new", "use another engine"},
		{"--engine mem: --level power", "ask for memory"},
		{"--engine mem: --data x", "set one of them"},
		{"--engine nonsense", "colon"},
		{"--test-mode --insecure --listen 0.0.0.0:0", "127.0.0.1"},
		{"--pprof :0 --data " + anew, "127.0.0.1"},
		{"--pprof nowhere --data " + anew, "127.0.0.1:6060"},
		{"--test-mode --data " + anew, "set one of them"},
		{"--data " + dir, "did not make"},
		{"--data postgres://u:secret@h/d", "--engine"},
		{"--level forever --data " + anew, "memory, process, power or quorum"},
		{"--log-level loud", "debug, info, warn or error"},
		{"--burst=-1 --data " + anew, "--burst: bad option: -1 is below 0"},
		{"--rate NaN --data " + anew, "--rate: bad option: NaN is below 0"},
		{"--query-time=-1s --data " + anew, "--query-time: bad option: -1s is below 0"},
		{"--backup-rate=-1 --data " + anew, "--backup-rate: bad option: -1 is below 0"},
		{value("max-body: -5"), "-5.yaml, line 2: bad option: -5 is below 0"},
		{"--listen 127.0.0.1:0 --data " + anew + " --token " + secret, "ns_ZGVmYXVsdA_"},
		{"--config " + filepath.Join(dir, "bad.yaml"), `line 2: there is no setting "nothing"`},
		{"--config " + filepath.Join(dir, "list.yaml"), "line 1: rate is not one value"},
		{"--config " + filepath.Join(dir, "none.yaml"), "no such file"},
		{value("rate: many"), "many.yaml, line 2: expected a float"},
		{value("log-format: pretty"), "pretty.yaml, line 2: \"pretty\" is none of auto, json, text"},
		{value("log-level: loud"), "--log-level: " + filepath.Join(dir, "loud.yaml, line 2: ")},
		{value("listen: nowhere"), "nowhere.yaml, line 2: "},
		{value("listen: nowhere") + " --listen there", "serve: --listen: bad option"},
		{value("level: forever"), "forever.yaml, line 2: "},
		{value("engine: nonsense"), "nonsense.yaml, line 2: "},
		{value("tls-key: y"), "y.yaml, line 2: "},
	} {
		status, out, text := result(t, holdfastCommand(t, append([]string{"serve"}, strings.Fields(c.args)...)...))
		if status != exitError || !strings.Contains(text, c.text) || out != "" || strings.Contains(text, "abab") {
			t.Errorf("%s: %d %s%s", c.args, status, out, text)
		}
	}
	if _, err := os.Stat(anew); !os.IsNotExist(err) {
		t.Errorf("what was refused has made a directory: %v", err)
	}
	// What is set for serve is no other command's business.
	cmd := holdfastCommand(t, "version")
	cmd.Env = append(cmd.Env, "HOLDFAST_CONFIG="+filepath.Join(dir, "bad.yaml"), "HOLDFAST_LISTEN=x")
	if status, _, text := result(t, cmd); status != exitOK {
		t.Error(status, text)
	}
}

// TestServeBackups: backups are made in the data directory, so on its file system, and a checkpoint is one of them.
// What a server leaves there that is killed meanwhile is gone when the next one has begun.
func TestServeBackups(t *testing.T) {
	t.Parallel() // it waits
	for _, engine := range []string{"logtree", "pebble"} {
		parent := t.TempDir()
		dir := filepath.Join(parent, "data")
		p := serve(t, nil, "--engine", engine+":"+dir, "--level", "process")
		write := `["stream.write","a-1",{"type":"T","data":{"s":"` + strings.Repeat("x", 4<<20) + `"}}]`
		for range 8 { // more than the sockets keep
			if status, text := p.rpc(p.token, write); status != 200 {
				t.Fatal(status, text)
			}
		}
		begin := func(token, query string) *http.Response {
			req, err := http.NewRequest("GET", p.url+"/v1/server/backup"+query, nil)
			try(t, err)
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := p.client.Do(req)
			try(t, err)
			return res
		}
		names := func(dir string) (list []string) {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return []string{err.Error()}
			}
			for _, e := range entries {
				list = append(list, e.Name())
			}
			return list
		}
		for _, query := range []string{"", "?link=true"} {
			res := begin(p.token, query)
			text, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != 200 || len(text) < 32<<20 {
				t.Fatalf("%s, %q: %s, %d bytes, %v", engine, query, res.Status, len(text), err)
			}
		}
		p.eventually("removed its backups", func() bool { return !slices.Contains(names(dir), "TEMP") })

		res := begin(p.token, "?link=true")
		if res.StatusCode != 200 {
			t.Fatal(res.Status)
		}
		if got := names(filepath.Join(dir, "TEMP")); len(got) != 1 || !strings.HasPrefix(got[0], "holdfast-backup-") {
			t.Errorf("%s, while a backup is read: %v", engine, got)
		}
		if got := names(parent); len(got) != 1 {
			t.Errorf("%s, beside the data: %v", engine, got)
		}
		try(t, p.cmd.Process.Kill())
		_ = p.cmd.Wait()
		p.stopped = true
		res.Body.Close()
		token := p.token
		p = serve(t, nil, "--engine", engine+":"+dir, "--level", "process")
		if got := append(names(dir), names(parent)...); slices.Contains(got, "TEMP") || len(names(parent)) != 1 {
			t.Errorf("%s, after a kill: %v", engine, got)
		}
		if status, text := p.rpc(token, `["stream.version","a-1"]`); text != "7" {
			t.Error(engine, status, text)
		}
		p.stop(syscall.SIGTERM)
	}
}
