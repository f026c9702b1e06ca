package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "example.com/m"

// TestPlanted plants one fault in a package that is else in order, and expects
// exactly that fault; a row without one must pass.
func TestPlanted(t *testing.T) {
	for _, tc := range []struct {
		name, file, src string
		want            string // a part of the one fault, "" for none
	}{
		{"floor imports nothing", "ucs/x.go", imports("errors"), ""},
		{"floor imports upwards", "ucs/x.go", own("config"), "ucs imports config: ucs is the floor"},
		{"services import each other", "ucs/ring/x.go", own("ucs", "ucs/cpu"), ""},
		{"settings import viper", "config/x.go", imports(viper), ""},
		{"settings import a subpackage's namesake", "config/x.go", imports(viper + "x"), "another dependency needs a decision record"},
		{"contract imports a provider", "uct/x.go", own("transports/shm"), "the transport contract knows no transport"},
		{"provider imports the contract", "transports/shm/x.go", own("uct", "ucs/ring", "config"), ""},
		{"provider imports what providers share", "transports/shm/x.go", own("transports/internal/mapped"), ""},
		{"shared part imports a provider", "transports/internal/mapped/x.go", own("transports/shm"), "below all of them"},
		{"provider imports a provider", "transports/shm/x.go", own("transports/self"), "never another provider"},
		{"provider imports wireup", "transports/self/x.go", own("wireup"), "never another provider, wireup or ucp"},
		{"provider imports ucp", "transports/rc/x.go", own("ucp"), "a verbs transport knows the verbs API"},
		{"rc imports a device", "transports/rc/x.go", own("verbs/soft"), "devices are handed to it"},
		{"unknown provider", "transports/tcp/x.go", own("uct"), "no row in the import table"},
		{"list of providers", "transports/x.go", own("transports/shm", "verbs/soft"), ""},
		{"wireup imports ucp", "wireup/x.go", own("ucp"), "no provider, no ucp"},
		{"ucp imports wireup", "ucp/x.go", own("wireup", "uct", "ucp/tagmatch"), ""},
		{"a component from its own file", "ucp/progress.go", "type polling struct{ active int }\n\nfunc f(w *struct{ polling polling }) int { return w.polling.active }\n", ""},
		{"a component from elsewhere", "ucp/x.go", "type polling struct{ active int }\n\nfunc f(w *struct{ polling polling }) int { return w.polling.active }\n", "touches polling.active"},
		{"ucp imports the list", "ucp/x.go", own("transports"), "never imports one"},
		{"ucp's test imports the list", "ucp/x_test.go", own("transports"), ""},
		{"perf imports a provider", "perf/x.go", own("transports/shm"), "handed their transports"},
		{"root imports ucp and the list", "x.go", own("ucp", "transports"), ""},
		{"root imports a provider", "x.go", own("transports/shm"), "the root only opens"},
		{"command imports anything", "cmd/a/x.go", own("transports/shm", "perf"), ""},
		{"library imports a command", "perf/x.go", own("cmd/a"), "nothing imports a command"},
		{"test imports a command", "perf/x_test.go", own("cmd/a"), "nothing imports a command"},
		{"library imports whole-program tests", "perf/x.go", own("test/procs"), "whole-program tests"},
		{"registration by blank import", "cmd/a/x.go", "import _ \"" + module + "/uct\"\n", "for its side effects"},
		{"unknown dependency", "ucp/x.go", imports("github.com/pkg/errors"), "another dependency needs a decision record"},

		{"unsafe in its file", "ucs/x_unsafe.go", imports("unsafe"), ""},
		{"unsafe per system", "ucs/x_unsafe_linux.go", imports("unsafe"), ""},
		{"unsafe elsewhere", "ucs/x.go", imports("unsafe"), "unsafe stands only"},
		{"unsafe in a test", "ucs/x_test.go", imports("unsafe"), "unsafe stands only"},
		{"cgo in its package", "verbs/ibv/x.go", imports("C"), ""},
		{"cgo elsewhere", "verbs/x.go", imports("C"), "cgo stands only"},
		{"old rand", "ucs/x_test.go", imports("math/rand"), "math/rand/v2"},
		{"rand in the product", "ucs/x.go", imports("math/rand/v2"), "crypto/rand"},
		{"rand in a test", "ucs/x_test.go", imports("math/rand/v2"), ""},
		{"rand in the simulator", "internal/sim/x.go", imports("math/rand/v2"), ""},
		{"testing in a suite", "uct/ucttest/x.go", imports("testing", testify+"/require"), ""},
		{"testing in the product", "uct/x.go", imports("testing"), "no test framework"},
		{"testify in the product", "uct/x.go", imports(testify + "/assert"), "no test framework"},

		{"init", "uct/x.go", "func init() {}\n", "func init"},
		{"init as a method", "uct/x.go", "type t int\n\nfunc (t) init() {}\n", ""},
		{"init in a test", "uct/x_test.go", "func init() {}\n", ""},
		{"vague name", "ucs/util/x.go", "", "says nothing of what it holds"},
		{"long file", "ucs/x.go", strings.Repeat("\n", tooLongFile), "split it"},
		{"long test", "ucs/x_test.go", strings.Repeat("\n", tooLongFile), ""},
		{"long generated file", "ucs/zz_x.go", strings.Repeat("\n", tooLongFile), ""},

		{"undocumented func", "uct/x.go", "func F() {}\n", "func F has no doc comment"},
		{"undocumented method", "uct/x.go", "// T is.\ntype T[E any] int\n\nfunc (*T[E]) M() {}\n", "func T.M has no doc comment"},
		{"method of an unexported type", "uct/x.go", "type t int\n\nfunc (t) M() {}\n", ""},
		{"undocumented type", "uct/x.go", "type T int\n", "type T has no doc comment"},
		{"undocumented const", "uct/x.go", "const C = 1\n", "const C has no doc comment"},
		{"undocumented var", "uct/x.go", "var (\n\tv = 1\n\tV = 2\n)\n", "var V has no doc comment"},
		{"documented group", "uct/x.go", "// All.\nconst (\n\tA = 1\n\tB = 2\n)\n", ""},
		{"documented at the end of the line", "uct/x.go", "const (\n\tA = 1 // one\n)\n", ""},
		{"undocumented setting", "uct/x.go", "// XConfig is.\ntype XConfig struct {\n\tN int\n}\n", "field XConfig.N has no doc comment"},
		{"hot function with its benchmark", "uct/x_test.go", "//hot:bench BenchmarkF BenchmarkF/sub\nfunc f() {}\n\nfunc BenchmarkF() {}\n", ""},
		{"hot function without its benchmark", "uct/x.go", "//hot:bench BenchmarkF\nfunc f() {}\n", "no benchmark BenchmarkF"},
		{"hot function in prose", "uct/x.go", "// hot: BenchmarkF\nfunc f() {}\n", "write it as a directive"},
		{"undocumented name in a command", "cmd/a/x.go", "func F() {}\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			faults := Check(module, []*Package{plant(t, tc.file, tc.src)})
			if tc.want == "" {
				assert.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0].String(), tc.want)
		})
	}
}

func TestPackageComment(t *testing.T) {
	p := &Package{Path: "ucs"}
	require.NoError(t, p.addFile("ucs/x.go", []byte("package ucs\n")))
	faults := Check(module, []*Package{p})
	require.Len(t, faults, 1)
	assert.Contains(t, faults[0].Why, "no package comment")
}

func TestAssembly(t *testing.T) {
	for _, tc := range []struct {
		name, pkg string
		files     []string
		want      string
	}{
		{"one family", "ucs/cpu", []string{"cpu_amd64.s", "cpu_arm64.s"}, ""},
		{"two families", "ucs/cpu", []string{"cpu_amd64.s", "copy_amd64.s"}, "more than one family"},
		{"elsewhere", "ucs/ring", []string{"ring_amd64.s"}, "assembly stands only in ucs/cpu"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plant(t, tc.pkg+"/x.go", "")
			p.Assembly = tc.files
			faults := Check(module, []*Package{p})
			if tc.want == "" {
				assert.Empty(t, faults)
				return
			}
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0].Why, tc.want)
		})
	}
}

func TestLongFiles(t *testing.T) {
	p := plant(t, "ucs/x.go", strings.Repeat("\n", longFile))
	assert.Len(t, LongFiles([]*Package{p}), 1)
}

// TestTables pins what a careless edit of the tables would break: a reason for
// every row, and no row that an earlier one hides.
func TestTables(t *testing.T) {
	for i, l := range Layers {
		assert.NotEmpty(t, l.Reason, l.Path)
		bare := strings.TrimSuffix(l.Path, "/...")
		first := slices.IndexFunc(Layers, func(o Layer) bool { return matches(o.Path, bare) })
		if l.Path == "ucs/..." {
			continue // its own root has a stricter row
		}
		assert.Equal(t, i, first, "row %s is hidden by row %s", l.Path, Layers[first].Path)
	}
	for _, b := range Bans {
		assert.NotEmpty(t, b.Reason, b.Import)
	}
}

// plant makes a package of one documented file with the given body.
func plant(t *testing.T, file, body string) *Package {
	t.Helper()
	dir, name := ".", "m"
	if i := strings.LastIndex(file, "/"); i >= 0 {
		dir = file[:i]
		name = dir[strings.LastIndex(dir, "/")+1:]
	}
	if strings.HasPrefix(dir, "cmd/") {
		name = "main"
	}
	p := &Package{Path: dir}
	src := fmt.Sprintf("// Package %s is planted.\npackage %[1]s\n\n%s", name, body)
	require.NoError(t, p.addFile(file, []byte(src)))
	return p
}

func imports(paths ...string) string {
	var b strings.Builder
	for _, p := range paths {
		fmt.Fprintf(&b, "import %q\n", p)
	}
	return b.String()
}

func own(paths ...string) string {
	full := make([]string, len(paths))
	for i, p := range paths {
		full[i] = module + "/" + p
	}
	return imports(full...)
}
