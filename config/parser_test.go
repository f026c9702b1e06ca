package config

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// good is one accepted text, its value and its canonical spelling.
type good[T any] struct {
	text  string
	want  T
	canon string
}

// checkParser runs a table over p: each good text gives its value and
// spelling, and the spelling gives the value again; each bad text is an error.
func checkParser[T any](t *testing.T, p Parser[T], goods []good[T], bads ...string) {
	t.Helper()
	assert.NotEmpty(t, p.Allowed)
	for _, g := range goods {
		t.Run("accepts "+g.text, func(t *testing.T) {
			v, err := p.Parse(g.text)
			require.NoError(t, err)
			assert.Equal(t, g.want, v)
			assert.Equal(t, g.canon, p.Format(v))
			again, err := p.Parse(p.Format(v))
			require.NoError(t, err)
			assert.Equal(t, v, again)
		})
	}
	for _, text := range bads {
		t.Run("refuses "+text, func(t *testing.T) {
			v, err := p.Parse(text)
			assert.Error(t, err, "gave %v", v)
		})
	}
}

func TestInt(t *testing.T) {
	checkParser(t, Int(-1, 4096), []good[int]{
		{"0", 0, "0"},
		{" 12\t", 12, "12"},
		{"-1", -1, "-1"},
		{"0x1F", 31, "31"},
		{"010", 10, "10"},
		{"4096", 4096, "4096"},
	}, "", "-2", "4097", "inf", "1k", "1.0", "0x", "0x-1", "1_000", "99999999999999999999", "zwölf")
}

func TestIntWithoutLimit(t *testing.T) {
	checkParser(t, Int(1, math.MaxInt), []good[int]{
		{"INF", math.MaxInt, "inf"},
		{"7", 7, "7"},
	}, "0", "auto")
}

func TestBool(t *testing.T) {
	checkParser(t, Bool(), []good[bool]{
		{"y", true, "y"},
		{"Yes", true, "y"},
		{"on", true, "y"},
		{"1", true, "y"},
		{"TRUE", true, "y"},
		{"n", false, "n"},
		{"NO", false, "n"},
		{"off", false, "n"},
		{"0", false, "n"},
		{"false", false, "n"},
	}, "", "2", "try", "yy", "auto")
}

func TestEnum(t *testing.T) {
	checkParser(t, Enum("cpu", "device", "Guess"), []good[string]{
		{"cpu", "cpu", "cpu"}, {" DEVICE ", "device", "device"}, {"guess", "Guess", "Guess"},
	}, "", "cp", "cpu,device")
}

func TestString(t *testing.T) {
	checkParser(t, String(), []good[string]{
		{"", "", ""}, {" a b ", "a b", "a b"}, {"/tmp/x=1;#", "/tmp/x=1;#", "/tmp/x=1;#"}, {"größe", "größe", "größe"},
	}, "a\nb", "a\x00", "\x7f", "\xff")
}

func TestSize(t *testing.T) {
	checkParser(t, Size(0, Inf), []good[Bytes]{
		{"0", 0, "0"},
		{"8192", 8192, "8K"},
		{"8193", 8193, "8193"},
		{"8k", 8192, "8K"},
		{"8KB", 8192, "8K"},
		{"8 kb", 8192, "8K"},
		{"17b", 17, "17"},
		{"3M", 3 << 20, "3M"},
		{"2gb", 2 << 30, "2G"},
		{"1t", 1 << 40, "1T"},
		{"2048t", 1 << 51, "2048T"},
		{"1.5k", 1536, "1536"},
		{"1e3", 1000, "1000"},
		{"1KiB", 1024, "1K"},
		{"3 Gi", 3 << 30, "3G"},
		{"0x1000", 4096, "4K"},
		{" 0XfF", 255, "255"},
		{"inf", Inf, "inf"},
		{"18446744073709551614", Inf - 1, "18446744073709551614"},
	}, "", "k", "b", ".", "-1", "+1", "1x", "1kk", "1kibi", "1ib", "1i", "0x", "0x1k", "0x-1", "-0x1", "0xffffffffffffffff", "0x10000000000000000", "1 k b", "auto", "1e", "16777216t", "18446744073709551615",
		"1e30", "1e16", "1..5", "1e400")
}

func TestSizeBounds(t *testing.T) {
	checkParser(t, Size(64, 1<<20), []good[Bytes]{
		{"64", 64, "64"}, {"1m", 1 << 20, "1M"},
	}, "63", "1048577", "inf")
	_, err := Size(64, 1<<20).Parse("2m")
	assert.EqualError(t, err, "out of range 64 to 1M")
}

func TestDuration(t *testing.T) {
	checkParser(t, Duration(0, Forever), []good[time.Duration]{
		{"0", 0, "0.00us"},
		{"0.00us", 0, "0.00us"},
		{"30", 30 * time.Second, "30000000.00us"},
		{"1s", time.Second, "1000000.00us"},
		{"0.1s", 100 * time.Millisecond, "100000.00us"},
		{"250ms", 250 * time.Millisecond, "250000.00us"},
		{"2.5us", 2500, "2.50us"},
		{"1.65e-6", 1650, "1.65us"},
		{"1000000.00us", time.Second, "1000000.00us"},
		{"5m", 5 * time.Minute, "300000000.00us"},
		{"90s", 90 * time.Second, "90000000.00us"},
		{"20 NS", 20, "0.02us"},
		{"1001ns", 1001, "1.001us"},
		{"9007199254740993ns", 1<<53 + 1, "9007199254740993ns"},
		{"9223372036854775806ns", Forever - 1, "9223372036854775806ns"},
		{"Inf", Forever, "inf"},
	}, "", "s", "-1s", "1h", "1d", "auto", "9223372036854775807ns", "1e20s", "1s2s", "0.1ns", "1e-300s")
	checkParser(t, Duration(time.Microsecond, time.Second), []good[time.Duration]{
		{"1us", time.Microsecond, "1.00us"},
		{"inf", time.Second, "1000000.00us"},
	}, "999ns", "1001ms", "infinite")
}

func TestIntUpTo(t *testing.T) {
	p := IntUpTo(1, 255)
	checkParser(t, p, []good[int]{{"1", 1, "1"}, {"255", 255, "255"}, {"1025", 255, "255"}, {"inf", 255, "255"}}, "0", "-1", "x", "")
	assert.Equal(t, "a number from 1; above 255 counts as 255", p.Allowed)
}

func TestIntraInter(t *testing.T) {
	p := IntraInter(OrAuto(Size(0, Inf)))
	type value = Optional[Bytes]
	k, k2, auto := value{Value: 1024}, value{Value: 2048}, value{Auto: true}
	checkParser(t, p, []good[ByNode[value]]{
		{"1k", ByNode[value]{k, k}, "1K"},
		{"auto", ByNode[value]{auto, auto}, "auto"},
		{"intra:1k,inter:2k", ByNode[value]{k, k2}, "intra:1K,inter:2K"},
		{" inter : 2KiB , Intra:0x400", ByNode[value]{k, k2}, "intra:1K,inter:2K"},
		{"2k,intra:1k", ByNode[value]{k, k2}, "intra:1K,inter:2K"},
		{"intra:1k,auto", ByNode[value]{k, auto}, "intra:1K,inter:auto"},
		{"intra:1k,inter:1k", ByNode[value]{k, k}, "1K"},
	}, "", ",", "1k,", "intra:", "intra:x,1k", "1k,inter:-1")
	for text, want := range map[string]string{
		"intra:1k": "no value for inter", "inter:1k": "no value for intra", "host:1k,2k": `"host" is neither intra nor inter`,
		"intra:1k,intra:2k": `"intra:2k" stands after another value of the same`, "1k,2k": `"2k" stands after another value of the same`,
	} {
		_, err := p.Parse(text)
		assert.EqualError(t, err, want, text)
	}
}

func TestOrAuto(t *testing.T) {
	p := OrAuto(Size(0, Inf))
	checkParser(t, p, []good[Optional[Bytes]]{
		{"auto", Optional[Bytes]{Auto: true}, "auto"},
		{" AUTO ", Optional[Bytes]{Auto: true}, "auto"},
		{"64k", Optional[Bytes]{Value: 64 << 10}, "64K"},
		{"inf", Optional[Bytes]{Value: Inf}, "inf"},
	}, "", "automatic")
	assert.Contains(t, p.Allowed, "or auto")
	assert.Equal(t, Bytes(7), Optional[Bytes]{Auto: true}.Or(7))
	assert.Equal(t, Bytes(3), Optional[Bytes]{Value: 3}.Or(7))
}
