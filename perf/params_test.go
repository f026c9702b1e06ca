package perf

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableOfTests(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Tests() {
		assert.False(t, seen[row.Name], row.Name)
		seen[row.Name] = true
		assert.Positive(t, row.Window, row.Name)
		assert.NotEmpty(t, row.Desc, row.Name)
		want := overhead
		if row.Pattern != Stream {
			want = latency
		}
		assert.Equal(t, want, row.Unit, row.Name)
		p := Defaults()
		p.Test = row.Name
		err := p.Check()
		if row.Later {
			assert.ErrorIs(t, err, errors.ErrUnsupported, row.Name)
			assert.ErrorContains(t, err, row.Name+": not supported yet")
		} else {
			assert.NoError(t, err, row.Name)
		}
	}
	ours := 0
	for name := range seen {
		row, err := Lookup(name)
		require.NoError(t, err)
		assert.Equal(t, row.API == Verbs, strings.HasPrefix(name, "verbs_"), "no name of UCX's is taken: %s", name)
		if row.API == Verbs {
			ours++
		}
	}
	assert.Len(t, seen, 26+ours, "all tests of UCX 1.13, and get_bw")
	_, err := Lookup("late")
	require.ErrorContains(t, err, `unknown test "late"; known are am_lat`)
	assert.NotContains(t, err.Error(), "stream_bw")
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(p *Params)
		want string
	}{
		"defaults":            {func(*Params) {}, ""},
		"endless":             {func(p *Params) { p.Iterations = 0 }, ""},
		"negative iterations": {func(p *Params) { p.Iterations = -5 }, "iterations -5 is out of range"},
		"negative warm-up":    {func(p *Params) { p.Warmup = -1 }, "warm-up iterations -1"},
		"window":              {func(p *Params) { p.Window = MaxWindow + 1 }, "window 65537 is out of range"},
		"rank":                {func(p *Params) { p.Rank = 101 }, "rank 101 is out of range"},
		"flow control":        {func(p *Params) { p.AMWindow = 0 }, "active message window 0"},
		"no sizes":            {func(p *Params) { p.Sizes = nil }, "0 message sizes"},
		"negative size":       {func(p *Params) { p.Sizes = []int64{-1} }, "message size -1 is out of range"},
		"huge size":           {func(p *Params) { p.Sizes = []int64{MaxSize + 1} }, "message size 4294967297 is out of range"},
		"huge sum":            {func(p *Params) { p.Test, p.Layout, p.Sizes = "am_lat", Zcopy, []int64{MaxSize, 8} }, "out of range: at most"},
		"huge stride": {func(p *Params) {
			p.Test, p.Layout, p.Sizes, p.Stride = "am_lat", Zcopy, []int64{8, 8}, MaxSize
		}, "out of range: at most"},
		"stride below piece": {func(p *Params) {
			p.Test, p.Layout, p.Sizes, p.Stride = "am_lat", Zcopy, []int64{8, 16}, 8
		}, "smaller than a piece of 16 bytes"},
		"empty tag message":   {func(p *Params) { p.Sizes = []int64{0} }, ""},
		"empty put":           {func(p *Params) { p.Test, p.Sizes = "ucp_put_bw", []int64{0} }, "need to be at least 1"},
		"atomic of 16":        {func(p *Params) { p.Test, p.Sizes = "ucp_fadd", []int64{16} }, "4 or 8 bytes"},
		"atomic of 4":         {func(p *Params) { p.Test, p.Sizes = "ucp_fadd", []int64{4} }, ""},
		"header above size":   {func(p *Params) { p.Test, p.Sizes = "am_lat", []int64{4} }, "header size 8 is larger than message size 4"},
		"header of short":     {func(p *Params) { p.Test, p.AMHeader = "am_lat", 4 }, "has a header of 8 bytes"},
		"bcopy has no header": {func(p *Params) { p.Test, p.Layout, p.Sizes = "am_lat", Bcopy, []int64{4} }, ""},
		"negative header":     {func(p *Params) { p.Test, p.Layout, p.AMHeader = "am_lat", Bcopy, -2 }, "header size -2"},
		"header beside size":  {func(p *Params) { p.Test, p.AMHeader = "ucp_am_lat", 16 }, ""},
		"header too long":     {func(p *Params) { p.Test, p.AMHeader = "ucp_am_bw", 513 }, "header size 513 is out of range: 0-512"},
		"threads":             {func(p *Params) { p.ThreadCount = 257 }, "number of threads 257 is out of range"},
		"negative threads":    {func(p *Params) { p.ThreadCount = -1 }, "number of threads -1"},
		"threads of UCT":      {func(p *Params) { p.Test, p.ThreadCount = "am_lat", 2 }, "one thread, which polls"},
		"UCT asleep":          {func(p *Params) { p.Test, p.Sleep = "am_lat", true }, "one thread, which polls"},
		"layout":              {func(p *Params) { p.Test, p.Layout = "am_lat", "iov" }, `data layout "iov"`},
		"pieces need zcopy":   {func(p *Params) { p.Test, p.Sizes = "am_lat", []int64{8, 8} }, "needs data layout zcopy"},
		"pieces over UCP":     {func(p *Params) { p.Sizes, p.Stride = []int64{8, 16}, 8 }, "distance 8 of pieces is smaller than a piece of 16 bytes"},
		"thread mode":         {func(p *Params) { p.Threads = "single serialized" }, "thread mode"},
		"no thread mode":      {func(p *Params) { p.Threads = "" }, "thread mode"},
		"sharing":             {func(p *Params) { p.Sharing = "dynamic" }, ""},
		"unknown sharing":     {func(p *Params) { p.Sharing = "dynamc" }, "tag_lat: unknown sharing policy \"dynamc\"; did you mean dynamic?"},
		"shared queue pairs":  {func(p *Params) { p.Sharing = "mpi-threads" }, "behind the worker's lock: give thread mode multi"},
		"behind a lock":       {func(p *Params) { p.Sharing, p.Threads = "mpi-threads", "multi" }, ""},
		"sharing asleep":      {func(p *Params) { p.Sharing, p.Sleep = "dynamic", true }, "with a sharing policy waits poll"},
		"validated stream":    {func(p *Params) { p.Test, p.Validate = "tag_bw", true }, "only ping-pongs of data"},
		"validated atomic":    {func(p *Params) { p.Test, p.Validate = "add_lat", true }, "only ping-pongs of data"},
		"validated":           {func(p *Params) { p.Validate = true }, ""},
		"validated pieces": {func(p *Params) {
			p.Test, p.Layout, p.Validate, p.Sizes = "am_lat", Zcopy, true, []int64{8, 8}
		}, "of one piece"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Defaults()
			p.Test = "tag_lat"
			tc.set(&p)
			err := p.Check()
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// All faults are told at once.
func TestCheckJoins(t *testing.T) {
	p := Defaults()
	p.Test, p.Warmup, p.Rank, p.Threads = "tag_lat", -1, -1, "x"
	err := p.Check()
	for _, want := range []string{"warm-up", "rank", "thread mode"} {
		require.ErrorContains(t, err, want)
	}
}

func TestCounts(t *testing.T) {
	for _, tc := range []struct{ n, w, iterations, warmup int64 }{
		{1_000_000, 10_000, 1_000_000, 10_000},
		{1000, 10_000, 1000, 100},
		{1001, 10_000, 1001, 101},
		{1, 10_000, 1, 1},
		{10, 0, 10, 0},
		{0, 10_000, unlimited, 10_000},
	} {
		p := Params{Iterations: tc.n, Warmup: tc.w}
		assert.Equal(t, tc.iterations, p.iterations(), "%+v", tc)
		assert.Equal(t, tc.warmup, p.warmup(), "%+v", tc)
	}
	bw, err := Lookup("tag_bw")
	require.NoError(t, err)
	assert.Equal(t, 32, (&Params{}).window(bw))
	assert.Equal(t, 5, (&Params{Window: 5}).window(bw))
}

// The names of the parameters are part of the protocol.
func TestParamsGolden(t *testing.T) {
	p := Defaults()
	p.Test = "am_bw"
	b, err := json.Marshal(p)
	require.NoError(t, err)
	assert.JSONEq(t, `{"test":"am_bw","sizes":[8],"iterations":1000000,"warmup":10000,"layout":"short",
		"am_window":127,"am_header":-1,"threads":"single","thread_count":1,"rank":50}`, string(b))
	var back Params
	require.NoError(t, json.Unmarshal(b, &back))
	assert.Equal(t, p, back)
}
