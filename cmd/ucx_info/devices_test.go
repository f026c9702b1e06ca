package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/uct"
)

func TestDevices(t *testing.T) {
	out := info(t, "-d")
	for _, want := range []string{
		"# Memory domain: self\n", "# Memory domain: shm\n",
		"#      Transport: shm\n#         Device: memory\n#           Type: intra-node\n",
		"#      Transport: self\n#         Device: memory0\n#           Type: loopback\n",
		"#            put_short: unlimited\n",
		"#          atomic_fxor: 32, 64 bit\n#          atomic_swap: 32, 64 bit\n#         atomic_cswap: 32, 64 bit\n",
		"#       error handling: peer failure, ep_check\n",
	} {
		assert.Contains(t, out, want)
	}
	for line := range strings.Lines(out) {
		assert.True(t, strings.HasPrefix(line, "#"), line)
		assert.Equal(t, strings.TrimRight(line, " \n")+"\n", line)
	}
}

// TestDevicesInUCXsColumns holds the names of fields that UCX has too to the
// column in which UCX prints them.
func TestDevicesInUCXsColumns(t *testing.T) {
	ucx, err := os.ReadFile("testdata/ucx-1.13.1-d.txt")
	require.NoError(t, err)
	columns := map[string]int{}
	for line := range strings.Lines(string(ucx)) {
		if name, ok := fieldName(line); ok {
			columns[name] = strings.Index(line, ":")
		}
	}
	shared := 0
	for line := range strings.Lines(info(t, "-d")) {
		name, ok := fieldName(line)
		if column, known := columns[name]; ok && known {
			assert.Equal(t, column, strings.Index(line, ":"), line)
			shared++
		}
	}
	assert.Greater(t, shared, 40)
}

func fieldName(line string) (string, bool) {
	name, _, ok := strings.Cut(strings.TrimPrefix(line, "#"), ":")
	return strings.TrimSpace(name), ok
}

func TestDevicesOfOneTransport(t *testing.T) {
	for _, name := range []string{"shm", "posix", "sm"} {
		out := info(t, "-d", "-t", name)
		assert.Contains(t, out, "Transport: shm")
		assert.NotContains(t, out, "Transport: self")
	}
}

func TestDevicesShowsWhatIsNotAllowed(t *testing.T) {
	t.Setenv("UCX_TLS", "self")
	assert.Contains(t, info(t, "-d"), "Transport: shm")
}

func TestDevicesJSON(t *testing.T) {
	text := info(t, "-v", "-d", "--json")
	assert.NotContains(t, text, "922337203", "no limit is null")
	assert.Contains(t, text, `"max_register": null`)
	var doc struct {
		Version map[string]any  `json:"version"`
		Devices []componentView `json:"devices"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &doc))
	require.Len(t, doc.Devices, len(transports.All()))
	assert.NotEmpty(t, doc.Version["go"])
	assert.Equal(t, []string{}, doc.Devices[0].Aliases, "empty lists are lists")
	shm := doc.Devices[1]
	assert.Equal(t, "shm", shm.Name)
	assert.Equal(t, []string{"sm", "mm", "posix"}, shm.Aliases)
	require.Len(t, shm.Domains, 1)
	require.Len(t, shm.Domains[0].Interfaces, 1)
	c := shm.Domains[0].Interfaces[0].Capabilities
	assert.Positive(t, c.Limits["am_bcopy"].Max)
	assert.Equal(t, []string{"32", "64"}, c.Atomics["atomic_fadd"])
	assert.Equal(t, []string{"local", "remote", "cancel"}, c.Flush)
	assert.Positive(t, c.LatencyNS)
}

// broken refuses one domain, and another does not open.
type broken struct{}

func (broken) Name() string             { return "broken" }
func (broken) Aliases() []string        { return nil }
func (broken) Settings() []config.Table { return nil }
func (broken) Domains(*config.Set) ([]uct.DomainInfo, []uct.Refusal) {
	return []uct.DomainInfo{{Component: "broken", Name: "card1"}}, []uct.Refusal{{Transport: "broken", Device: "card0", Reason: "no link"}}
}

func (broken) OpenDomain(uct.DomainInfo, uct.DomainConfig) (uct.Domain, error) {
	return nil, errors.New("no memory to lock")
}

func TestRefusedDevicesAreShownWithReason(t *testing.T) {
	o, err := parse([]string{"-d", "--why"})
	require.NoError(t, err)
	tool := newTool(o, []uct.Component{broken{}}, io.Discard)
	require.NoError(t, tool.show())
	out := tool.out.String()
	assert.Contains(t, out, "# < refused broken/card0: no link >\n")
	assert.Contains(t, out, "# < refused broken/card1: no memory to lock >\n")
	assert.Contains(t, out, "#     broken/card0: no link\n")
	assert.Contains(t, out, "#     broken/card1: no memory to lock\n")
	assert.Contains(t, out, "#     none: this peer cannot be reached\n")
}

// single opens once.
type single struct {
	uct.Component
	opened bool
}

func (s *single) OpenDomain(i uct.DomainInfo, c uct.DomainConfig) (uct.Domain, error) {
	if s.opened {
		return nil, errors.New("one is all there is")
	}
	s.opened = true
	return s.Component.OpenDomain(i, c)
}

func TestWhatThePeerRefusesHasItsReason(t *testing.T) {
	o, err := parse([]string{"--why", "-P", "intra"})
	require.NoError(t, err)
	tool := newTool(o, []uct.Component{&single{Component: transports.All()[1]}}, io.Discard)
	require.NoError(t, tool.show())
	assert.Contains(t, tool.out.String(), "#     shm/shm: at the peer: one is all there is\n#     shm/memory: the peer does not have it\n")
}

func TestLimitText(t *testing.T) {
	for want, l := range map[string]limit{
		"unlimited":                    {Max: unlimited},
		"<= 8K":                        {Max: 8 << 10},
		"<= 100":                       {Max: 100},
		">= 64":                        {Min: 64, Max: unlimited + 1},
		"64..1M, up to 4 iov":          {Min: 64, Max: 1 << 20, MaxVec: 4},
		"unlimited, any number of iov": {Max: unlimited, MaxVec: unlimited},
	} {
		assert.Equal(t, want, l.String())
	}
}

func TestCapabilitiesOfADevice(t *testing.T) {
	c := capabilitiesOf(&uct.IfaceAttr{
		Ops: uct.OpAMBcopy | uct.OpAtomics, AM: uct.Limit{Bcopy: 1024},
		Fetch64: 1<<uct.AtomicAdd | 1<<uct.AtomicCompareSwap, DeviceAtomics: true,
		Connect:  uct.ConnectToEndpoint,
		Estimate: uct.Estimate{LatencyNS: 600, LatencyPerEpNS: 1},
	})
	assert.Equal(t, map[string]limit{"am_bcopy": {Max: 1024}}, c.Limits)
	assert.Equal(t, map[string][]string{"atomic_fadd": {"64"}, "atomic_cswap": {"64"}}, c.Atomics)
	assert.Equal(t, "device", c.AtomicDomain)
	assert.Equal(t, "to ep", c.Connection)
	assert.Empty(t, c.ErrorHandling)
	assert.Equal(t, "600 + 1 * N nsec", latencyText(c))
}
