package rxe

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/test/rxe/vm"
)

// suite is a conformance suite that a test binary runs in the machine.
type suite struct {
	name   string
	binary binary
	test   string // the pattern of -test.run
	short  string // the same with -short; "": not with -short
	peer   bool   // in namespace peer
	env    []string
	limit  time.Duration
	least  int // passed cases of the full run: fewer means that the pattern matches no more
}

var suites = []suite{
	{
		name: "verbstest over soft, UDP", binary: softTest, test: "^TestConformanceUDP$", short: "^TestConformanceUDP$/^(device|object|data)$",
		peer: true, limit: 2 * time.Minute, least: 100,
	},
}

var caseEnd = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): `)

// TestSuites: the conformance suites pass in the machine.
func TestSuites(t *testing.T) {
	for _, s := range suites {
		argv := []string{s.binary.name, "-test.v", "-test.timeout=0", "-test.run=" + s.test}
		if testing.Short() {
			if s.short == "" {
				continue
			}
			argv = []string{s.binary.name, "-test.v", "-test.timeout=0", "-test.short", "-test.run=" + s.short}
		}
		t.Run(s.name, func(t *testing.T) {
			provide(t, s.binary)
			start := time.Now()
			r, err := machine(t).Run(vm.Job{Argv: argv, Env: s.env, Peer: s.peer, Limit: s.limit})
			if err != nil {
				t.Fatal(err)
			}
			ends := map[string]int{}
			for _, m := range caseEnd.FindAllStringSubmatch(r.Stdout, -1) {
				ends[m[1]]++
			}
			spent(fmt.Sprintf("%s: %d cases passed, %d failed, %d not applicable", s.name, ends["PASS"], ends["FAIL"], ends["SKIP"]), start)
			requireOK(t, strings.Join(argv, " "), r)
			assert.NotZero(t, ends["PASS"])
			if !testing.Short() {
				assert.GreaterOrEqual(t, ends["PASS"], s.least)
			}
		})
	}
}
