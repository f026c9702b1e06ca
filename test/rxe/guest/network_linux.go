package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Both verbs devices are in one namespace, each on a link of its own. So a frame from one of the
// machine's own addresses must be accepted on the other link, and only the link that has an address
// may reply to ARP for it. No duplicate address detection, since an address that is still
// tentative has no GID; namespace "peer" inherits that.
var sysctls = []struct{ name, value string }{
	{"net/core/devconf_inherit_init_net", "1"},
	{"net/ipv6/conf/all/accept_dad", "0"},
	{"net/ipv6/conf/default/accept_dad", "0"},
	{"net/ipv4/conf/all/accept_local", "1"},
	{"net/ipv4/conf/default/accept_local", "1"},
	{"net/ipv4/conf/all/rp_filter", "0"},
	{"net/ipv4/conf/default/rp_filter", "0"},
	{"net/ipv4/conf/all/arp_ignore", "1"},
	{"net/ipv4/conf/default/arp_ignore", "1"},
}

// links and rules are the network of the root namespace, peerLinks that of namespace "peer". Package vm's
// documentation has the addresses.
const (
	links = `link set lo up
link add ve0 mtu MTU address 02:00:0a:4d:00:01 type veth peer name pv0 mtu MTU netns peer
link add ve1 mtu MTU address 02:00:0a:4d:00:03 type veth peer name pv1 mtu MTU netns peer
link set ve0 up
link set ve1 up
addr add 10.77.0.1/24 dev ve0
addr add fd77::1/64 dev ve0 nodad
addr add 10.77.0.3/24 dev ve1
addr add fd77::3/64 dev ve1 nodad
`
	// Packets to the other device's IPv6 address must leave by the link. So only what comes in is looked up
	// in the table of local addresses first. (For IPv4, a route of the link that is asked for is enough.)
	rules = `rule add pref 1 iif ve0 lookup local
rule add pref 1 iif ve1 lookup local
rule add pref 40000 lookup local
rule del pref 0
`
	peerLinks = `link set lo up
link add pe0 mtu MTU address 02:00:0a:4d:00:02 type bridge
link set pv0 master pe0 up
link set pv1 master pe0 up
link set pe0 up
addr add 10.77.0.2/24 dev pe0
addr add fd77::2/64 dev pe0 nodad
`
)

// neighbors returns commands for ip that add permanent neighbor entries to a link. Without them the transition of a
// queue pair to RTR fails if the first ARP reply takes longer than a second.
func neighbors(link string, others ...int) string {
	var b strings.Builder
	for _, n := range others {
		for _, net := range []string{"10.77.0.", "fd77::"} {
			fmt.Fprintf(&b, "neigh replace %s%d lladdr 02:00:0a:4d:00:%02x dev %s nud permanent\n", net, n, n, link)
		}
	}
	return b.String()
}

// setUpNetwork makes the namespaces, links and verbs devices.
func setUpNetwork() error {
	for _, s := range sysctls {
		if err := os.WriteFile("/proc/sys/"+s.name, []byte(s.value), 0); err != nil {
			return err
		}
	}
	mtu, err := os.ReadFile("/settings")
	if err != nil {
		return err
	}
	batch := func(b string) string { return strings.ReplaceAll(b, "MTU", strings.TrimSpace(string(mtu))) }
	for _, c := range []struct{ input, line string }{
		{"", "ip netns add peer"},
		{batch(links), "ip -batch -"},
		{batch(peerLinks), "ip -n peer -batch -"},
		{neighbors("ve0", 2, 3) + neighbors("ve1", 1, 2), "ip -batch -"},
		{neighbors("pe0", 1, 3), "ip -n peer -batch -"},
		{rules, "ip -6 -batch -"},
		{"", "rdma link add rxe0 type rxe netdev ve0"},
		{"", "rdma link add rxe1 type rxe netdev ve1"},
	} {
		argv := strings.Fields(c.line)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(c.input)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c.line, err, out)
		}
	}
	return nil
}
