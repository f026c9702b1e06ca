package udp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

func TestUDPSendErrors(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		want  ucs.Status
		count Counter
	}{
		{unix.EAGAIN, ucs.NoResource, TxAgain},
		{unix.ENOBUFS, ucs.NoResource, TxAgain},
		{unix.EMSGSIZE, ucs.TooLong, TxTooLong},
		{unix.EIO, ucs.OK, TxUnsegmented},
		{unix.ECONNREFUSED, ucs.OK, TxRefused},
		{unix.EPERM, ucs.Unreachable, TxUnreachable},
		{unix.EHOSTUNREACH, ucs.Unreachable, TxUnreachable},
	} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			u := new(Socket)
			u.GSO.Store(true)
			tr := u.newBatch()
			tr.Count = 7
			require.Equal(t, c.want, tr.sendStatus(c.errno))
			require.Equal(t, uint64(1), u.Counts[c.count].Load())
			set := CountsOf([]*Socket{u})
			require.Equal(t, uint64(1), set.Value(int(c.count)))
			require.Equal(t, c.errno != unix.EIO, u.GSO.Load())
			lost := uint64(0)
			if c.want == ucs.OK {
				lost = 7
			}
			require.Equal(t, lost, u.Counts[TxLost].Load())
		})
	}
}
