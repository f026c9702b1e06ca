package config

import (
	"math"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fuzzParser holds p to its promise: what it accepts it can spell, and the
// spelling means the same.
func fuzzParser[T any](f *testing.F, p Parser[T], seeds ...string) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := p.Parse(text)
		if err != nil {
			return
		}
		spelled := p.Format(v)
		again, err := p.Parse(spelled)
		require.NoError(t, err, "%q from %q", spelled, text)
		assert.Equal(t, v, again, "%q from %q", spelled, text)
		assert.Equal(t, spelled, p.Format(again))
	})
}

func FuzzString(f *testing.F) { fuzzParser(f, String(), "", " a ", "a\tb", "\xff") }

func FuzzInt(f *testing.F) {
	fuzzParser(f, Int(math.MinInt, math.MaxInt), "0", "-7", "0x1f", "inf", "9223372036854775807", "-9223372036854775808")
}

func FuzzBool(f *testing.F) { fuzzParser(f, Bool(), "y", "off", "TRUE") }

func FuzzEnum(f *testing.F) { fuzzParser(f, Enum("a", "Bc"), "A", "bc") }

func FuzzSize(f *testing.F) {
	fuzzParser(f, OrAuto(Size(0, Inf)), "8k", "1.5GB", "inf", "auto", "1e3", "18446744073709551614", "9007199254740993.0")
}

func FuzzDuration(f *testing.F) {
	fuzzParser(f, OrAuto(Duration(0, Forever)), "1s", "2.5us", "5m", "inf", "auto", "1.65e-6", "9223372036854775806ns")
}

func FuzzIntraInter(f *testing.F) {
	fuzzParser(f, IntraInter(OrAuto(Size(0, Inf))), "8k", "intra:1k,inter:2k", "1KiB,intra:0x10", "intra:inf,inter:auto", "inter:1", ",")
}

// FuzzUCXValue: the one spelling of a value in a syntax of UCX is of that syntax, and its own.
func FuzzUCXValue(f *testing.F) {
	for i, v := range ucxVariables() {
		f.Add(i, v.def)
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		v := ucxVariables()[uint(i)%uint(len(ucxVariables()))]
		if one, err := canonicalUCX(v.syntax, text); err == nil && !strings.Contains(v.syntax, "bandwidth") && !strings.Contains(v.syntax, "hex") {
			again, err := canonicalUCX(v.syntax, one)
			require.NoError(t, err, "%s: %q from %q", v.syntax, one, text)
			assert.Equal(t, one, again, v.syntax)
		}
	})
}

func FuzzList(f *testing.F) {
	fuzzParser(f, ListOf("names"), "all", "^a,b*", "mlx5_[0-12]:1", "", "\xff,a", "a,\u00a0,b", "^\u2003x")
}

// FuzzGlob compares with path.Match where both know the pattern's meaning.
func FuzzGlob(f *testing.F) {
	f.Add("a*b?", "axxbc")
	f.Add("[a-c]*", "bx")
	f.Add("[0-12]", "7")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if len(pattern) > 50 || len(s) > 200 {
			return
		}
		got := glob(pattern, s)
		if strings.ContainsAny(pattern, "[]\\") || strings.ContainsRune(s, '/') || !isASCII(pattern+s) {
			return
		}
		want, err := path.Match(pattern, s)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= 0x80 })
}

// FuzzConf reads any bytes as ucx.conf. What it takes from them must be told
// apart by line, and written out again mean the same.
func FuzzConf(f *testing.F) {
	f.Add([]byte("UCX_TLS=a\n[s]\nCPU vendor=AMD\nX: y ; z\n"))
	f.Add([]byte("\xef\xbb\xbf[a\n=\n;\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		sections, bad := parseConf(text)
		line := 0
		var out strings.Builder
		out.WriteString("\n") // a byte order mark in front of the first key would be the file's
		for i, sec := range sections {
			if i > 0 {
				require.Greater(t, sec.line, line)
				line = sec.line
				out.WriteString("[" + sec.name + "]\n")
			}
			for _, l := range sec.lines {
				require.Greater(t, l.line, line)
				line = l.line
				out.WriteString(l.key + "=" + l.value + "\n")
			}
		}
		if len(bad) > 0 {
			return
		}
		again, bad := parseConf([]byte(out.String()))
		require.Empty(t, bad)
		require.Len(t, again, len(sections))
		for i, sec := range sections {
			require.Equal(t, sec.name, again[i].name)
			require.Len(t, again[i].lines, len(sec.lines))
			for j, l := range sec.lines {
				require.Equal(t, l.key, again[i].lines[j].key)
				require.Equal(t, l.value, again[i].lines[j].value)
			}
		}
		// Any bytes may also be the file itself: no panic, whatever comes of it.
		var src sources
		src.readConf("f", text, func() Host { return Host{CPUVendor: "AMD"} })
	})
}

// FuzzTree reads any bytes in each format: no panic, and each value has a
// place.
func FuzzTree(f *testing.F) {
	f.Add([]byte("tls: [a, b]\nshm:\n  x: 1\n"))
	f.Add([]byte("tls = ['a']\n[shm]\nx = 1.5\n"))
	f.Add([]byte(`{"tls": ["a"], "shm": {"x": null}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, ext := range []string{"yaml", "toml", "json"} {
			entries, _ := readTree("f."+ext, text)
			for _, e := range entries {
				assert.True(t, strings.HasPrefix(e.origin.Where, "f."+ext+":"))
			}
		}
	})
}

func FuzzCPUInfo(f *testing.F) {
	f.Add("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\n")
	f.Fuzz(func(t *testing.T, text string) {
		vendor, model := identifyCPU(text)
		assert.NotEmpty(t, vendor)
		assert.NotEmpty(t, model)
	})
}
