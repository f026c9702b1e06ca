package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// freeAddr is one that nobody listens on, as far as one can tell.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// TestAllgather: everybody gets what each gave, in each of several rounds.
func TestAllgather(t *testing.T) {
	const rounds = 5
	for _, size := range []int{1, 2, 5} {
		dir, addr := t.TempDir(), freeAddr(t)
		for name, meet := range map[string]func(rank int) (exchanger, error){
			"directory": func(rank int) (exchanger, error) { return &directory{path: dir, rank: rank, size: size}, nil },
			"tcp":       func(rank int) (exchanger, error) { return meetTCP(bounded(t), addr, rank, size) },
		} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				ctx := bounded(t)
				var all sync.WaitGroup
				for rank := range size {
					all.Go(func() {
						x, err := meet(rank)
						if !assert.NoError(t, err) {
							return
						}
						for round := range rounds {
							got, err := x.allgather(ctx, given(rank, round))
							assert.NoError(t, err)
							assert.Len(t, got, size)
							for r, b := range got {
								assert.True(t, bytes.Equal(given(r, round), b), "what rank %d gave in round %d", r, round)
							}
						}
						assert.NoError(t, x.close())
					})
				}
				all.Wait()
			})
		}
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, size, "those of the last round")
	}
}

// given is nothing now and then, and long now and then.
func given(rank, round int) []byte {
	return bytes.Repeat([]byte{byte(rank), byte(round)}, rank*round*1000)
}

func TestJoin(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, rank, size, dir, want string }{
		{"no rank", "", "2", dir, "JOB_RANK"},
		{"no size", "0", "x", dir, "JOB_SIZE"},
		{"rank too large", "2", "2", dir, "not below"},
		{"negative", "-1", "2", dir, "JOB_RANK"},
		{"nowhere", "0", "2", "", "JOB_DIR"},
		{"good", "1", "2", dir, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("JOB_RANK", c.rank)
			t.Setenv("JOB_SIZE", c.size)
			t.Setenv("JOB_DIR", c.dir)
			t.Setenv("JOB_ADDR", "")
			j, err := Join(bounded(t))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, j.Rank)
			require.Equal(t, 2, j.Size)
			_, err = j.Allgather(bounded(t), make([]byte, maxContribution+1))
			require.Error(t, err)
			require.NoError(t, j.Close())
		})
	}
}

// TestUsedDirectory: what an earlier job left is not taken for ours.
func TestUsedDirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0-0"), nil, 0o600))
	_, err := (&directory{path: dir, size: 1}).allgather(bounded(t), nil)
	require.ErrorIs(t, err, os.ErrExist)
}

// TestMissing: who never comes is waited for until ctx ends.
func TestMissing(t *testing.T) {
	dir, addr := t.TempDir(), freeAddr(t)
	for name, wait := range map[string]func(context.Context) error{
		"directory": func(ctx context.Context) error {
			_, err := (&directory{path: dir, size: 2}).allgather(ctx, nil)
			return err
		},
		"tcp root": func(ctx context.Context) error { _, err := meetTCP(ctx, addr, 0, 2); return err },
		"tcp leaf": func(ctx context.Context) error { _, err := meetTCP(ctx, addr, 1, 2); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, wait(ctx), context.DeadlineExceeded)
		})
	}
}

// TestStrangers: whoever connects and says nonsense is hung up on, and the job
// comes together all the same.
func TestStrangers(t *testing.T) {
	ctx, addr := bounded(t), freeAddr(t)
	for _, nonsense := range []string{"\x04\x00\x00\x00\x07\x00\x00\x00", "\xff\xff\xff\xff", "\x01\x00\x00\x00x", ""} {
		var all sync.WaitGroup
		all.Go(func() {
			x, err := meetTCP(ctx, addr, 0, 2)
			if assert.NoError(t, err) {
				_, err = x.allgather(ctx, nil)
				assert.NoError(t, err)
				assert.NoError(t, x.close())
			}
		})
		var c net.Conn
		require.Eventually(t, func() (up bool) {
			var err error
			c, err = net.Dial("tcp", addr)
			return err == nil
		}, patience, time.Millisecond)
		_, err := c.Write([]byte(nonsense))
		require.NoError(t, err)
		if nonsense == "" {
			require.NoError(t, c.Close())
		}
		x, err := meetTCP(ctx, addr, 1, 2)
		require.NoError(t, err)
		_, err = x.allgather(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, x.close())
		all.Wait()
		_ = c.Close()
	}
}
