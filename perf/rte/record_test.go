package rte

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRecordGolden(t *testing.T) {
	b, err := appendRecord(nil, record{Type: "barrier", Seq: 3})
	require.NoError(t, err)
	assert.Equal(t, "\x1a\x00\x00\x00"+`{"type":"barrier","seq":3}`, string(b))
	assert.Equal(t, "goucxprf\x03\x00\x00\x00", string(appendGreeting(nil)))
}

// Every cut of a record asks for more; none is taken for a record or an error.
func TestRecordTruncated(t *testing.T) {
	b, err := appendRecord(nil, record{Type: "run", Body: json.RawMessage(`{"test":"tag_lat"}`)})
	require.NoError(t, err)
	for n := range b {
		_, used, err := parseRecord(b[:n])
		require.NoError(t, err, "cut at %d", n)
		require.Zero(t, used, "cut at %d", n)
	}
	r, used, err := parseRecord(append(b, "more"...))
	require.NoError(t, err)
	assert.Equal(t, len(b), used)
	assert.Equal(t, "run", r.Type)
}

func TestRecordRefused(t *testing.T) {
	for name, b := range map[string]string{
		"no length":   "\x00\x00\x00\x00",
		"too long":    "\x01\x00\x10\x00",
		"huge":        "\xff\xff\xff\xff",
		"not JSON":    "\x03\x00\x00\x00abc",
		"not object":  "\x02\x00\x00\x0012",
		"no type":     "\x02\x00\x00\x00{}",
		"seq not int": "\x18\x00\x00\x00" + `{"type":"a","seq":"one"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := parseRecord([]byte(b))
			require.ErrorIs(t, err, errRecord)
		})
	}
	_, err := appendRecord(nil, record{Type: "a", Body: json.RawMessage(`"` + string(make([]byte, MaxRecord)) + `"`)})
	require.Error(t, err)
}

func FuzzRecord(f *testing.F) {
	b, err := appendRecord(nil, record{Type: "hello", Seq: 7, Body: json.RawMessage(`{"pid":1}`)})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, n, err := parseRecord(b)
		if err != nil || n == 0 {
			require.Zero(t, n)
			return
		}
		require.LessOrEqual(t, n, len(b))
		again, err := appendRecord(nil, r)
		if err != nil {
			return // JSON that grows beyond the limit when it is written anew
		}
		back, _, err := parseRecord(again)
		require.NoError(t, err)
		require.Equal(t, r.Type, back.Type)
		require.Equal(t, r.Seq, back.Seq)
	})
}
