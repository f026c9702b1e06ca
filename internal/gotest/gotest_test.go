package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	const (
		passing = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
`
		skipping = `{"Action":"output","Package":"m/a","Test":"TestA/x","Output":"=== RUN   TestA/x\n"}
{"Action":"output","Package":"m/a","Test":"TestA/x","Output":"    a_test.go:7: no RDMA device\n"}
{"Action":"output","Package":"m/a","Test":"TestA/x","Output":"--- SKIP: TestA/x (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestA/x"}
`
		failing = `{"Action":"output","Package":"m/a","Test":"TestA","Output":"    a_test.go:9: broken\n"}
{"Action":"fail","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t0.1s\n"}
{"Action":"fail","Package":"m/a"}
`
		shuffled = `{"Action":"output","Package":"m/a","Output":"-test.shuffle 7\n"}
`
		hanging = `{"Action":"output","Package":"m/a","Test":"TestA","Output":"goroutine 1 [running]:\n"}
{"Action":"fail","Package":"m/a"}
`
	)
	for _, tc := range []struct {
		name, in, allow string
		want, err       string
	}{
		{"pass", passing, "", "ok  \tm/a\t0.1s\n", ""},
		{"seed of a pass", shuffled + passing, "", "ok  \tm/a\t0.1s\n", ""},
		{"seed of a failure", shuffled + hanging, "", "-test.shuffle 7\ngoroutine 1 [running]:\n", ""},
		{"no test files", `{"Action":"skip","Package":"m/a"}` + "\n", "", "", ""},
		{"not JSON", "go: downloading\n", "", "go: downloading\n", ""},
		{"build error", `{"Action":"build-output","ImportPath":"m/a","Output":"a.go:1: syntax\n"}` + "\n", "", "a.go:1: syntax\n", ""},
		{"fail", failing, "", "    a_test.go:9: broken\nFAIL\tm/a\t0.1s\n", ""},
		{"hang", hanging, "", "goroutine 1 [running]:\n", ""},
		{
			"allowed skip", skipping, "race:a/TestA/.* needs hardware\n",
			"skip\trace:a/TestA/x: no RDMA device [needs hardware]\n1 skipped, 0 of them not allowed\n", "",
		},
		{
			"skip not allowed", skipping, "a/TestA needs hardware\n",
			"skip\trace:a/TestA/x: no RDMA device [not on the allow-list]\n1 skipped, 1 of them not allowed\n",
			"not listed in .ci/skips.txt:\n\trace:a/TestA/x",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allowed, err := parseAllowed(tc.allow)
			require.NoError(t, err)
			var out strings.Builder
			r := newReport(&out, "m\n", "race:", allowed)
			require.NoError(t, r.read(strings.NewReader(tc.in)))
			err = r.finish()
			assert.Equal(t, tc.want, out.String())
			if tc.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, tc.err)
			}
		})
	}
}

func TestParseAllowed(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"no reason", "# fine\n\na/TestA\n", "line 3: no reason after a/TestA"},
		{"bad expression", "a/( because\n", "line 1: error parsing regexp"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseAllowed(tc.in)
			assert.ErrorContains(t, err, tc.want)
		})
	}
}

func TestSetting(t *testing.T) {
	assert.Empty(t, setting([]string{"-shuffle=on"}, runtime.GOARCH))
	assert.Equal(t, "race:", setting([]string{"-race"}, ""))
	assert.Equal(t, "mips:", setting(nil, "mips"))
}
