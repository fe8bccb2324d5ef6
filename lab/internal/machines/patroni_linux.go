package machines

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// managed is what Patroni needs, of which a machine has its own: etcd is where the three agree.
var managed = []struct{ command, debian string }{
	{"patroni", "patroni"}, {"etcd", "etcd-server"},
	{"unshare", "util-linux"}, {"setpriv", "util-linux"},
}

// checkManager returns an error if the machines cannot have it.
func checkManager(manager string) error {
	if manager == "" {
		return nil
	}
	if !slices.Contains(Managers(), manager) {
		return refused("machines", fmt.Sprintf("there is no manager %q", manager),
			"the managers are "+console.List(Managers()))
	}
	var commands, packages []string
	for _, m := range managed {
		if _, err := exec.LookPath(m.command); err != nil {
			commands, packages = append(commands, m.command), append(packages, m.debian)
		}
	}
	if len(commands) == 0 {
		return nil
	}

	return &holdfast.Error{Op: "machines", Class: holdfast.ErrUnavailable,
		Detail: console.List(commands) + " cannot be found",
		Remedy: "install Debian's " + console.List(slices.Compact(packages))}
}

// manage starts etcd and Patroni, which makes the server, or brings what there is of it to where it belongs; the caller
// has m.mu.
func (m *Machine) manage() error {
	if m.manager.running() {
		return nil
	}
	var cluster, clients []string
	for _, name := range Names() {
		address := m.lab.Address(name)
		cluster = append(cluster, fmt.Sprintf("%s=http://%s:2380", name, address))
		clients = append(clients, address+":2379")
	}
	peer, client := "http://"+m.Address()+":2380", "http://"+m.Address()+":2379"
	cmd := exec.Command("etcd", "--name", string(m.name), "--data-dir", filepath.Join(m.dir(), "etcd"),
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--initial-cluster", strings.Join(cluster, ","), "--pre-vote", "--enable-v2", "--logger", "zap")
	cmd.Dir = "/"
	if _, err := startProgram(m.space(), cmd, m.log("etcd")); err != nil {
		return err
	}

	home := filepath.Dir(m.data())
	if err := m.lab.home.mkdir(home); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	config, api := filepath.Join(home, "patroni.yml"), "etcd"
	if m.lab.manager == PatroniEtcd3 {
		api = "etcd3"
	}
	err := os.WriteFile(config, []byte(strings.NewReplacer(
		"API", api, "NAME", string(m.name), "ADDRESS", m.Address(), "ETCD", strings.Join(clients, ", "),
		"DATA", m.data(), "HOME", home, "BIN", m.lab.home.Bin, "SUPERUSER", superuser,
	).Replace(patroniConfig)), 0o644)
	if err != nil {
		return err
	}

	// The server is no child of Patroni, and would outlive it: with the first process of a space of processes all end.
	// It needs a /proc of its own, and so has mounts of its own.
	as := m.lab.home.as
	cmd = exec.Command("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "setpriv",
		fmt.Sprintf("--reuid=%d", as.Uid), fmt.Sprintf("--regid=%d", as.Gid), "--clear-groups",
		"--inh-caps=+dac_override", "--ambient-caps=+dac_override", "patroni", config)
	cmd.Dir, cmd.Env = "/", []string{"LC_ALL=C.UTF-8", "PATH=/usr/bin:/bin"}
	m.manager, err = startProgram(m.space(), cmd, m.log("patroni"),
		func() error { return blockdev.Unshare(m.dir()) })

	return err
}

// patroniConfig are the settings of Patroni 3.0. docs/quorum.md shows those that matter.
const patroniConfig = `
scope: holdfast
name: NAME
restapi:
  listen: ADDRESS:8008
  connect_address: ADDRESS:8008
API:
  hosts: ETCD
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    master_start_timeout: 0
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: true
      parameters:
        fsync: 'on'
        full_page_writes: 'on'
        wal_log_hints: 'on'
        synchronous_commit: 'on'
        shared_buffers: 16MB
        min_wal_size: 8MB
        max_wal_size: 64MB
        wal_keep_size: 32MB
        wal_sender_timeout: 5s
        wal_receiver_timeout: 5s
        wal_retrieve_retry_interval: 100ms
        tcp_user_timeout: 5s
        dynamic_shared_memory_type: mmap
  initdb:
  - encoding: UTF8
  - locale: C
  - wal-segsize: '1'
postgresql:
  listen: ADDRESS:5432
  connect_address: ADDRESS:5432
  data_dir: DATA
  bin_dir: BIN
  pgpass: HOME/pgpass
  authentication:
    superuser:
      username: SUPERUSER
      password: unused
    replication:
      username: replicator
      password: unused
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  parameters:
    unix_socket_directories: ''
  pg_hba:
  - host all all samenet trust
  - host replication all samenet trust
watchdog:
  mode: 'off'
`

// promoted waits until one of the machines that the host can reach is the primary and has a standby that would be
// promoted after it, and notes it.
func (l *Lab) promoted(ctx context.Context) (*Machine, error) {
	err := Until(ctx, "a primary with a standby that may be promoted", func() (bool, error) {
		leader, standby, err := l.synchronous(ctx)
		m := l.machines[leader]
		if err != nil || m == nil || standby == "" {
			return false, fmt.Errorf("leader %q, synchronous standby %q: %w", leader, standby, err)
		}
		ready, err := l.leads(ctx, m, standby)
		if ready {
			l.primary = leader
		}

		return ready, err
	})
	if err != nil {
		return nil, failure("fail over", "no manager has promoted any"+l.said(), err)
	}

	return l.machines[l.primary], nil
}

// Await returns when a standby could be promoted. A manager knows of one a moment after the server does, and would
// promote nobody before.
func (l *Lab) Await(ctx context.Context) error {
	if l.manager == "" {
		return nil
	}
	l.promoting.Lock()
	defer l.promoting.Unlock()
	before := l.primary
	m, err := l.promoted(ctx)
	if err == nil && m.name != before {
		err = failure("await", fmt.Sprintf("%s is the primary instead of %s, and nothing was lost", m.name, before), nil)
	}

	return err
}

// synchronous asks the etcds for what Patroni has agreed on: who leads, and who may be promoted after it.
func (l *Lab) synchronous(ctx context.Context) (leader, standby Name, err error) {
	const key = "/service/holdfast/sync"
	for _, name := range Names() {
		var sync struct {
			Leader  Name
			Standby Name `json:"sync_standby"`
		}
		url := "http://" + l.Address(name) + ":2379"
		var value []byte
		var failed error
		if l.manager == Patroni {
			var v2 struct{ Node struct{ Value string } }
			failed = ask(ctx, http.MethodGet, url+"/v2/keys"+key+"?quorum=true", nil, &v2)
			value = []byte(v2.Node.Value)
		} else {
			var v3 struct{ KVs []struct{ Value []byte } }
			request, _ := json.Marshal(map[string][]byte{"key": []byte(key)})
			if failed = ask(ctx, http.MethodPost, url+"/v3/kv/range", request, &v3); len(v3.KVs) > 0 {
				value = v3.KVs[0].Value
			}
		}
		if failed == nil {
			failed = json.Unmarshal(value, &sync)
		}
		if failed == nil {
			return sync.Leader, sync.Standby, nil
		}
		err = errors.Join(err, failed)
	}

	return "", "", err
}

// ask asks for JSON.
func ask(ctx context.Context, method, url string, request []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(request))
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	return json.NewDecoder(response.Body).Decode(answer)
}

// said is what the managers have logged last, if there are any.
func (l *Lab) said() (all string) {
	for _, name := range Names() {
		if m := l.machines[name].manager; m != nil {
			all += fmt.Sprintf("; %s's Patroni: %s", name, m.said())
		}
	}

	return all
}

// leads asks a machine, from the host, whether it is the primary, and waits for a standby if one is named.
func (l *Lab) leads(ctx context.Context, m *Machine, standby Name) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	config := m.Config()
	config.DialFunc = new(net.Dialer).DialContext
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)

	return query[bool](ctx, conn, `SELECT NOT pg_is_in_recovery() AND ($1 = '' OR EXISTS
		(SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming' AND sync_state = 'sync'))`,
		string(standby))
}

// Leader asks the machines, from the host, which of them is a primary; nil if none is. It need not be the one that was
// promoted last: a manager may go wrong.
func (l *Lab) Leader(ctx context.Context) *Machine {
	for _, name := range Names() {
		if yes, err := l.leads(ctx, l.machines[name], ""); yes && err == nil {
			return l.machines[name]
		}
	}

	return nil
}
