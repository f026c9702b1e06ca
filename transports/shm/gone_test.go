package shm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// A worker that is closed, as one whose process is dead, is gone for certain where
// both addresses name one place; elsewhere other transports are worth trying.
func TestGoneForCertain(t *testing.T) {
	f, peer := openTest(t, new(recorder)), openTest(t, new(recorder))
	a := addressOf(peer)
	require.NoError(t, peer.Close())
	_, err := f.NewEndpoint(a)
	require.ErrorIs(t, err, ucs.ErrUnreachable)
	require.ErrorIs(t, err, ucs.ErrPeerFailed)

	// What of the addresses does not show that it was this host.
	for name, lack := range map[string]func(mine, there []byte){
		"boot id":           func(mine, there []byte) { clear(mine[6:22]); clear(there[6:22]) },
		"namespace":         func(mine, there []byte) { clear(mine[22:38]); clear(there[22:38]) },
		"network addresses": func(mine, there []byte) { clear(mine[38:46]); clear(there[38:46]) },
		"a clone":           func(_, there []byte) { there[40]++ },
	} {
		f.deviceAddr, a.Device = appendDeviceAddress(nil, f.dir), appendDeviceAddress(nil, f.dir)
		lack(f.deviceAddr, a.Device)
		appendCRC(f.deviceAddr[:46])
		appendCRC(a.Device[:46])
		_, err = f.NewEndpoint(a)
		require.ErrorIs(t, err, ucs.ErrUnreachable, name)
		assert.NotErrorIs(t, err, ucs.ErrPeerFailed, name)
	}
	assert.Zero(t, f.mappedConns)
}

// In a directory the file of a worker that closed says for a while that it was here,
// whatever the network addresses. A file that is missing proves nothing: somebody else
// may have removed it.
func TestGoneFromADirectory(t *testing.T) {
	dir := t.TempDir()
	set, err := loaded("UCX_SHM_SOCKET_DIR=" + dir)
	require.NoError(t, err)
	f := openWith(t, new(recorder), "UCX_SHM_SOCKET_DIR="+dir)
	d, err := Component().OpenDomain(uct.DomainInfo{Component: transportName, Name: transportName}, uct.DomainConfig{Settings: set})
	require.NoError(t, err)
	c := uct.IfaceConfig{Handler: new(recorder), Worker: uct.UUID{2}, Settings: set}
	stays, err := openIface(d.(*domain), uct.IfaceInfo{}, c)
	require.NoError(t, err)
	var gone []uct.Address
	for range maxTombstones + 1 {
		peer, err := openIface(d.(*domain), uct.IfaceInfo{}, c)
		require.NoError(t, err)
		a := addressOf(peer)
		a.Device[40]++ // another network namespace
		appendCRC(a.Device[:46])
		gone = append(gone, a)
		require.NoError(t, peer.Close())
	}
	refused := func(a uct.Address, certainly bool) {
		_, err := f.NewEndpoint(a)
		require.ErrorIs(t, err, ucs.ErrUnreachable)
		require.Equal(t, certainly, errors.Is(err, ucs.ErrPeerFailed), "%v", err)
	}
	refused(gone[0], false) // too many came after it
	refused(gone[1], true)
	refused(gone[maxTombstones], true)
	require.NoError(t, os.Remove(f.socketName(ifaceName(gone[2].Iface))))
	refused(gone[2], false)
	// Who starts here does not take it for a crashed worker's at once.
	openWith(t, new(recorder), "UCX_SHM_SOCKET_DIR="+dir)
	refused(gone[1], true)
	e, err := f.NewEndpoint(addressOf(stays))
	require.NoError(t, err)
	e.Close()
	require.NoError(t, stays.Close())
	require.NoError(t, d.Close())
	refused(gone[1], false)
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 2, "of the two that are open")
}

// TestBadSocketDir: a directory that holds no sockets is refused by the setting's name.
func TestBadSocketDir(t *testing.T) {
	for _, dir := range []string{"/nonexistent", "/tmp/" + strings.Repeat("x", 120)} {
		set, err := loaded("UCX_SHM_SOCKET_DIR=" + dir)
		require.NoError(t, err)
		_, err = openIface(newTestDomain(t), uct.IfaceInfo{}, uct.IfaceConfig{Handler: new(recorder), Worker: uct.UUID{1}, Settings: set})
		require.ErrorContains(t, err, "UCX_SHM_SOCKET_DIR="+dir)
	}
}
