package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestForbiddenFileWarns(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_TLS=a")
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) // for the identity below
	require.NoError(t, os.Chmod(filepath.Join(dir, "ucx.conf"), 0))
	asNobody(t)
	_, err := os.ReadFile(filepath.Join(dir, "ucx.conf"))
	require.ErrorIs(t, err, fs.ErrPermission)

	_, warnings := load(t, Options{Dirs: []string{dir}})
	assert.Contains(t, texts(warnings), "ucx.conf is not read")
}

func TestForbiddenDirectoryWarnsOnce(t *testing.T) {
	dir := write(t, "ucx.conf", "UCX_TLS=a")
	require.NoError(t, os.Chmod(dir, 0))
	t.Cleanup(func() { assert.NoError(t, os.Chmod(dir, 0o700)) })
	asNobody(t)

	_, warnings := load(t, Options{Dirs: []string{dir}})
	require.Len(t, warnings, 1)
	assert.Contains(t, texts(warnings), dir+" is not searched for configuration files: ")
}

// asNobody takes from the test, where root runs it, what root may do with files.
// Any other user keeps its rights: the call does nothing then.
func asNobody(t *testing.T) {
	t.Helper()
	const nobody = 65534
	runtime.LockOSThread() // the identity for files is the thread's
	require.NoError(t, syscall.Setfsuid(nobody))
	t.Cleanup(func() {
		assert.NoError(t, syscall.Setfsuid(os.Geteuid()))
		runtime.UnlockOSThread()
	})
}
