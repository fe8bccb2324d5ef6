package machines

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// network is the bridge with its four places. The bridge is in a namespace of its own.
type network struct {
	number int // of the lab: it is in the name of the host's interface and in the addresses
	bridge *namespace
	spaces map[Name]*namespace // the host's is nil

	mu  sync.Mutex
	cut map[link]bool // by Cut
	off map[Name]bool // without power
	now map[link]bool // those that lose packets
}

// link is the way of packets from one place to another.
type link struct{ from, to Name }

// places lists all that is on the bridge.
func places() []Name { return append(Names(), Host) }

// address is where a place is on the network: 198.18.0.0/15 is for tests of networks, and so nobody's (RFC 2544).
func (n *network) address(name Name) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18 + byte(n.number>>8), byte(n.number), byte(slices.Index(places(), name) + 1)})
}

// mac is the hardware address of a place; lost is one that no place has.
func (n *network) mac(name Name) string {
	return fmt.Sprintf("02:68:66:%02x:%02x:%02x", n.number>>8, n.number&0xff, slices.Index(places(), name)+1)
}

const lost = "02:68:66:ff:ff:ff"

// device is the name of a place's interface.
func (n *network) device(name Name) string {
	if name == Host {
		return fmt.Sprintf("holdfast%d", n.number)
	}

	return "eth0"
}

// newNetwork makes the namespaces and connects them.
func newNetwork(ctx context.Context) (_ *network, err error) {
	n := &network{spaces: map[Name]*namespace{}, cut: map[link]bool{}, off: map[Name]bool{}, now: map[link]bool{}}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.bridge, err = newNamespace(); err != nil {
		return nil, err
	}
	for _, name := range Names() {
		if n.spaces[name], err = newNamespace(); err != nil {
			return nil, err
		}
	}

	if err = n.connectHost(ctx); err != nil {
		return nil, err
	}
	commands := "link add bridge type bridge\nlink set bridge up\n" + port(string(Host))
	for i, name := range Names() {
		commands += fmt.Sprintf("link add name %s type veth peer name %s netns /proc/self/fd/%d\n", name, n.device(name), 3+i)
		commands += port(string(name))
	}
	if err = n.bridge.ip(ctx, commands, n.spaces[A], n.spaces[B], n.spaces[C]); err != nil {
		return nil, err
	}
	for _, name := range places() {
		if err = n.spaces[name].ip(ctx, n.configure(name)); err != nil {
			return nil, err
		}
	}

	return n, nil
}

// connectHost makes the host's interface. Its name is free only if no other lab has the number.
func (n *network) connectHost(ctx context.Context) error {
	const attempts = 50

	var err error
	for range attempts {
		n.number = rand.IntN(512)
		if inUse(n.address(Host)) {
			continue
		}
		var host *namespace
		err = host.ip(ctx, fmt.Sprintf("link add name %s type veth peer name host netns /proc/self/fd/3\n", n.device(Host)),
			n.bridge)
		if err == nil || !strings.Contains(err.Error(), "File exists") {
			return err
		}
	}

	return fmt.Errorf("no free network in 198.18.0.0/15: %w", err)
}

// inUse reports whether an interface of the host has an address in the network of this one.
func inUse(address netip.Addr) bool {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}

	return slices.ContainsFunc(addresses, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Masked().Overlaps(netip.PrefixFrom(address, prefixBits).Masked())
	})
}

const prefixBits = 24

// port makes an interface in the bridge's namespace a port of the bridge.
func port(name string) string {
	return fmt.Sprintf("link set dev %s addrgenmode none master bridge up\n", name)
}

// configure gives a place its address, and the hardware addresses of the others: nobody asks for them.
func (n *network) configure(name Name) string {
	dev := n.device(name)
	commands := fmt.Sprintf("link set dev %s address %s addrgenmode none up\naddr add %v/%d dev %s\n",
		dev, n.mac(name), n.address(name), prefixBits, dev)
	if name != Host {
		commands = "link set dev lo up\n" + commands
	}

	for _, to := range places() {
		if to != name {
			commands += n.neighbour(link{name, to}, n.mac(to))
		}
	}

	return commands
}

// neighbour says to which hardware address packets go.
func (n *network) neighbour(l link, mac string) string {
	return fmt.Sprintf("neigh replace %v lladdr %s dev %s nud permanent\n", n.address(l.to), mac, n.device(l.from))
}

// change changes which links lose packets.
func (n *network) change(ctx context.Context, f func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()

	want := maps.Clone(n.cut)
	commands := map[Name]string{}
	for _, from := range places() {
		for _, to := range places() {
			l := link{from, to}
			if from == to {
				continue
			}
			if n.off[from] || n.off[to] {
				want[l] = true
			}
			switch {
			case want[l] && !n.now[l]:
				commands[from] += n.neighbour(l, lost)
			case !want[l] && n.now[l]:
				commands[from] += n.neighbour(l, n.mac(to))
			}
		}
	}
	for name, text := range commands {
		if err := n.spaces[name].ip(ctx, text); err != nil {
			return failure("change network", string(name), err)
		}
	}
	n.now = want

	return nil
}

// quicken lets connections of the machines that get no answer end within seconds: programs that set nothing would wait
// for hours, as pg_rewind does.
func (n *network) quicken(ctx context.Context) error {
	const settings = "cd /proc/sys/net/ipv4 && echo 3 >tcp_keepalive_time && echo 1 >tcp_keepalive_intvl && " +
		"echo 3 >tcp_keepalive_probes && echo 3 >tcp_retries2"
	for _, name := range Names() {
		if err := n.spaces[name].run(exec.CommandContext(ctx, "sh", "-c", settings)); err != nil {
			return err
		}
	}

	return nil
}

// close removes everything: the host's interface goes with its peer, but later, and so it is removed by name.
func (n *network) close() {
	if n.bridge != nil {
		_ = n.bridge.ip(context.Background(), "link del host\n") // there is none if making failed
		n.bridge.close()
	}
	for _, s := range n.spaces {
		if s != nil {
			s.close()
		}
	}
}
