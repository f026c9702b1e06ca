package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func fakePlan(t *testing.T, mode string) plan {
	t.Setenv(fakeMode, mode)
	return plan{pairs: 1, length: time.Second, client: 0, server: 1, ours: os.Args[0], ucx: os.Args[0]}
}

func TestMeasure(t *testing.T) {
	p := fakePlan(t, "ok")
	t.Setenv("UCX_RNDV_THRESH", "1")
	args := []string{"-t", "tag_lat", "-s", "8", "-n", "100"}
	f, err := p.measure(t.Context(), p.goucx(row{}, variant{}), args)
	require.NoError(t, err)
	want := len(strings.Fields("-c 0 -p PORT -f -v localhost")) + len(args)
	assert.InDelta(t, float64(want)*1e6, f.of(rate), 0, "the client got its place, -f -v, and the test's options")
	assert.InDelta(t, 1/float64(want), f.of(latency), 1e-12)
}

func TestEnvironmentHoldsOnlyTheTransports(t *testing.T) {
	t.Setenv("UCX_RNDV_THRESH", "1")
	t.Setenv("UCX_TLS", "tcp")
	var ucx []string
	for _, kv := range (plan{}).cucx(row{over: loopback}).environment() {
		if strings.HasPrefix(kv, "UCX_") {
			ucx = append(ucx, kv)
		}
	}
	assert.Equal(t, []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}, ucx)
	assert.Contains(t, (plan{}).goucx(row{over: loopback}, variant{env: "UCX_SPIN_TIME=0"}).environment(), "UCX_SPIN_TIME=0")
}

func TestMeasureFaults(t *testing.T) {
	for mode, says := range map[string]string{
		"client fails": "fake: no such test",
		"garbage":      "unexpected output",
		"server ends":  "ended before its client came",
		"server fails": "fake: peer vanished",
	} {
		t.Run(mode, func(t *testing.T) {
			p := fakePlan(t, mode)
			_, err := p.measure(t.Context(), p.cucx(row{}), nil)
			assert.ErrorContains(t, err, says)
		})
	}
	t.Run("no binary", func(t *testing.T) {
		p := fakePlan(t, "ok")
		p.ours = "/nonexistent/ucx_perftest"
		_, err := p.measure(t.Context(), p.goucx(row{}, variant{}), nil)
		assert.ErrorContains(t, err, "/nonexistent/ucx_perftest")
	})
}

// TestMeasureOne runs one process, on one core or with a thread on each of two.
func TestMeasureOne(t *testing.T) {
	p := fakePlan(t, "ok")
	for f, words := range map[form]string{
		oneThread:  "-f -v -c 0 -l -t tag_lat",
		twoThreads: "-f -v -c 0,1 -l -T 2 -t tag_lat",
	} {
		r := row{form: f, ucxForm: f}
		for _, tl := range []tool{p.goucx(r, variant{}), p.cucx(r)} {
			got, err := p.measure(t.Context(), tl, []string{"-t", "tag_lat"})
			require.NoError(t, err)
			assert.InDelta(t, float64(len(strings.Fields(words)))*1e6, got.of(rate), 0, words)
		}
	}
	t.Setenv(fakeMode, "client fails")
	_, err := p.measure(t.Context(), p.cucx(row{ucxForm: oneThread}), []string{"-t", "tag_lat"})
	assert.ErrorContains(t, err, "fake: no such test")
}

// TestMeasureEndsTheServer lets the time of the run end while the server hangs.
func TestMeasureEndsTheServer(t *testing.T) {
	p := fakePlan(t, "server deaf")
	p.length = 200*time.Millisecond - runLimit
	_, err := p.measure(t.Context(), p.goucx(row{}, variant{}), nil)
	require.ErrorContains(t, err, "context deadline exceeded")
}

func TestListening(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	ok, err := listening(port)
	require.NoError(t, err)
	assert.True(t, ok)
	require.NoError(t, l.Close())
	ok, err = listening(port)
	require.NoError(t, err)
	assert.False(t, ok)
}

func TestListensReadsTheTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:3419 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F90 0100007F:3419 01 00000000:00000000 00:00000000 00000000     0        0 2 1
`
	assert.True(t, listens(table, 0x3419))
	assert.False(t, listens(table, 0x1f90), "connected, not listening")
	assert.False(t, listens(table, 0x419))
	assert.False(t, listens("", 0x3419))
}

func TestParseFigures(t *testing.T) {
	const header = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	f, err := parseFigures("box\n" + header + "5,1,1,1.000,1,1,1,1\n1000000,0.432,2.725,4.188,2.80,1.82,366952,238784\n")
	require.NoError(t, err)
	assert.Equal(t, figures{238784}, f)
	assert.InDelta(t, 4.188, f.of(latency), 0.001)
	f, err = parseFigures(header + "200000,1.627,9.38,1229347\n")
	require.NoError(t, err, "several threads")
	assert.Equal(t, figures{1229347}, f)
	for name, out := range map[string]string{
		"nothing":   "",
		"no row":    header,
		"no number": header + "1,1,1,1,1,1,1,x\n",
		"zero":      header + "1,1,1,1,1,1,1,0\n",
		"cut":       header + "1,1,1\n",
	} {
		_, err := parseFigures(out)
		assert.ErrorIs(t, err, errOutput, name)
	}
}
