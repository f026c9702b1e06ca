package main

import (
	"regexp"
	"slices"
)

// difference is a known difference: lines of this pattern differ in these kinds, for this reason.
type difference struct {
	lines      *regexp.Regexp
	kinds      []string
	title, why string
}

// differences are the known ones. The first that matches a line and a kind is that of the line.
var differences = []*difference{
	is("-t stream_[a-z]+( -r [a-z_]+)?\\]?$", kindStatus, "`stream_*`", "goucx has no streams"),
	is("-D (iov|contig,iov|shortiov)[^m]*$", kindStatus, "`-D iov`, `shortiov`", "goucx sends one piece in a UCP or a short message"),
	is("-A (thread_mutex|signal)$", kindStatus, "`-A thread_mutex`, `signal`", "timers run in a goroutine, which is no choice"),
	is("memory -t get$", kindStatus, "`get`, short, over shared memory", "goucx's shm has a short get"),
	is("memory -t (am|put)_lat -D zcopy", kindStatus, "zcopy over `posix`", "goucx's shm sends without a copy; UCX's has cma for this"),
	is("posix.*\\[.*-D zcopy", kindRows, "zcopy over `posix` in a batch", "goucx's shm sends without a copy; UCX's has cma for this"),
	is("-t get_bw| -y$| -V$| -X$|-a host|-L thread", kindStatus, "`get_bw -y -V -X -a -L`", "came to UCX after 1.13"),
	is("-s 8k$", kindBox, "`-s 8k`", "UCX reads 8"),
	is("-f -I$", kindRows, "`-I` on the command line", "1.13 means the extra information that is `-X` today; in batch files, and here, it is wakeup"),
	is("-P 0$", kindServer, "`-P 0`", "UCX without MPI prints its help", kindRows, kindColumns, kindBox),
	is("^-h$", kindColumns, "`-h`", "goucx has options and tests of its own"),
	is("^[^[]*(-c 9999|-m (cuda|host,cuda-managed)|-D sgl|-K mlx5_0:1|-a cuda:0|-L warp|-F 64|-Y random|-[gG] 127[0-9.:]*)$", kindServer,
		"what a client alone finds", "goucx's client reports to its server why it does not run"),
	is("\\[.*-m [a-z,-]*cuda|\\[.*-D sgl|x -t nonsense|x -t tag_lat -Q", kindServer, "batch lines that the client refuses", "goucx's server serves all others, and has no error of its own"),
	is("x -t tag_lat -m cuda|x -t nonsense|x -t tag_lat -Q", kindRows, "one such line among others", "the others run; UCX ends at it"),
	is("x -t ucp_get -s 0|mlx5_0:1 \\[", kindStatus, "a batch of which a run fails", "goucx's exit code is 1"),
	is("\\[# nothing\\]$", kindStatus, "a batch file without a line", "nothing would be measured"),
}

// is returns an entry; pattern is one of titles of lines.
func is(pattern, kind, title, why string, more ...string) *difference {
	return &difference{regexp.MustCompile(pattern), append([]string{kind}, more...), title, why}
}

// known returns the known difference of a line, or nil.
func known(l line, kind string) *difference {
	for _, d := range differences {
		if slices.Contains(d.kinds, kind) && d.lines.MatchString(l.title()) {
			return d
		}
	}
	return nil
}
