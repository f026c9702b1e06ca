package ucp_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/wireup"
)

// manyAddresses gives a function that makes the i-th of n distinct addresses like
// a: 100 processes on each host. The result is valid until the next call.
func manyAddresses(tb testing.TB, a ucp.Address, n int) func(i int) ucp.Address {
	tb.Helper()
	v, err := wireup.Parse(a)
	require.NoError(tb, err)
	require.Positive(tb, n)
	var buf []byte
	for i := range v.Entries {
		v.Entries[i].Addr.Device = append([]byte(nil), v.Entries[i].Addr.Device...)
	}
	return func(i int) ucp.Address {
		binary.LittleEndian.PutUint64(v.Host[:], uint64(i/100))
		binary.LittleEndian.PutUint64(v.Process[:], uint64(i))
		binary.LittleEndian.PutUint64(v.Worker[:], uint64(i)*0x9E3779B97F4A7C15)
		for k := range v.Entries {
			if d := v.Entries[k].Addr.Device; len(d) >= 8 {
				binary.LittleEndian.PutUint64(d, uint64(i/100))
			}
		}
		var err error
		buf, err = v.Append(buf[:0])
		require.NoError(tb, err)
		return buf
	}
}
