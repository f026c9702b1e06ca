package rxe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/test/rxe/vm"
)

// suite is a conformance suite that a test binary runs in the machine.
type suite struct {
	name   string
	binary binary
	// Patterns of -test.run for make nightly, for make test-rxe, and with -short; "": the suite is not run.
	whole, part, short string
	few                bool // always with -test.short: fewer messages
	peer               bool // in namespace peer
	env                []string
	skip               string // pattern of cases that are not run: they bound times, which an emulated machine does not keep
	limit              time.Duration
	least              int // passed cases of the whole run: fewer means that the pattern matches no more
	// deviations is the file of testdata that lists the cases that fail; "": none do. The suite of
	// package verbs has its own list.
	deviations string
}

var suites = []suite{
	{
		name: "verbstest over soft, UDP", binary: softTest, whole: "^TestConformanceUDP$",
		peer: true, limit: 2 * time.Minute, least: 100,
	},
	{
		name: "verbstest over ibv, rxe0", binary: ibvTest,
		whole: ".", part: "^TestLive", short: "^TestConformance$/^(device|object|data)$|^TestLive",
		env: []string{"GOUCX_IBV_DEVICE=rxe0"}, limit: 6 * time.Minute, least: 100,
	},
	{
		name: "verbstest over ibv, rxe0 and rxe1", binary: ibvTest, whole: "^TestConformance$", part: "^TestConformance$",
		env: []string{"GOUCX_IBV_DEVICE=rxe0,rxe1"}, limit: 6 * time.Minute, least: 100,
	},
	{
		name: "a multicast group of rxe0 and a soft device", binary: transportTest, whole: "^TestGroup$", part: "^TestGroup$",
		env:   []string{"GOUCX_IBV_DEVICE=rxe0", "GOUCX_IBV_GROUP_PEER=/run/netns/peer 10.77.0.2 fd77::2"},
		limit: time.Minute, least: 2,
	},
	{
		name: "ucttest over rc", binary: transportTest,
		whole: "^TestRC$", part: "^TestRC$", short: "^TestRC$/^(am|put|get|atomic)$/^(short|bcopy|zcopy|sizes|large|fetch64)$",
		few: true, env: []string{"GOUCX_IBV_DEVICE=rxe0"}, skip: "/^pending$/^unattended$", limit: 6 * time.Minute, least: 80, deviations: "ucttest.txt",
	},
	{
		name: "ucttest over ud", binary: transportTest,
		whole: "^TestUD$", part: "^TestUD$", short: "^TestUD$/^am$/^(short|bcopy|zcopy)$",
		few: true, env: []string{"GOUCX_IBV_DEVICE=rxe0"}, skip: "/^pending$/^unattended$", limit: 6 * time.Minute, least: 50, deviations: "ucttest.txt",
	},
	{
		name: "ucptest over rc", binary: transportTest,
		whole: "^TestUCPOverRC$", part: "^TestUCPOverRC$", short: "^TestUCPOverRC$/one/^(1|2|4|13|36|57)_",
		few: true, env: []string{"GOUCX_IBV_DEVICE=rxe0"}, skip: "//short_messages_pass_while", limit: 8 * time.Minute, least: 100, deviations: "ucptest.txt",
	},
	{
		name: "ucptest over ud", binary: transportTest,
		whole: "^TestUCPOverUD$", part: "^TestUCPOverUD$", short: "^TestUCPOverUD$/one/^(1|4)_",
		few: true, env: []string{"GOUCX_IBV_DEVICE=rxe0"}, skip: "//short_messages_pass_while", limit: 8 * time.Minute, least: 100, deviations: "ucptest.txt",
	},
}

// pattern returns the cases to run; "": none.
func (s *suite) pattern() string {
	switch {
	case testing.Short():
		return s.short
	case suitetest.All():
		return s.whole
	default:
		return s.part
	}
}

// argv returns the command line of the suite's test binary.
func (s *suite) argv() []string {
	argv := []string{s.binary.name, "-test.v", "-test.timeout=0", "-test.run=" + s.pattern()}
	if s.skip != "" {
		argv = append(argv, "-test.skip="+s.skip)
	}
	if s.few || testing.Short() {
		argv = append(argv, "-test.short")
	}
	return argv
}

// TestSuites: the conformance suites pass in the machine, except for the cases that are listed as failing.
func TestSuites(t *testing.T) {
	for _, s := range suites {
		if s.pattern() == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			provide(t, s.binary)
			start := time.Now()
			r, err := machine(t).Run(vm.Job{Argv: s.argv(), Env: s.env, Peer: s.peer, Limit: s.limit})
			require.NoError(t, err)
			cases := outcomes(r.Stdout)
			spent(fmt.Sprintf("%s: %s", s.name, cases.count()), start)
			listed := map[string]string{}
			if s.deviations != "" {
				list, err := os.ReadFile(filepath.Join("testdata", s.deviations))
				require.NoError(t, err)
				listed, err = readDeviations(string(list), machine(t).Boot.Release)
				require.NoError(t, err, s.deviations)
			}
			faults := cases.compare(listed)
			// A test binary that has run to its end ends with 0 or, where a case failed, with 1.
			if len(faults) > 0 || !r.OK() && (r.Status != 1 || cases.number(failed) == 0) {
				t.Errorf("%s\n", strings.Join(faults, "\n"))
				requireOK(t, strings.Join(s.argv(), " "), r)
			}
			assert.NotZero(t, cases.number(passed))
			if s.pattern() == s.whole {
				assert.GreaterOrEqual(t, cases.number(passed), s.least)
			}
		})
	}
}
