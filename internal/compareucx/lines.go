package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Groups of lines, as the table shows them.
const (
	groupTests   = "tests"
	groupOptions = "options"
	groupOutput  = "forms of output"
	groupBad     = "bad command lines"
	groupSizes   = "batch lines: sizes"
	groupTypes   = "batch lines: types of tests"
	groupFiles   = "whole batch files"
)

// line is a command line of the client, or the text of its batch files.
type line struct {
	group string
	args  []string
	// files are the texts of batch files. UCX's server needs them too.
	files []string
	// alone is a line that runs in one process, without a server.
	alone bool
	// server are the options that the server needs.
	server []string
}

// title returns the line as a user writes it.
func (l line) title() string {
	parts := slices.Clone(l.args)
	for _, f := range l.files {
		parts = append(parts, "["+strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimSpace(f), "\n", " | ")), " ")+"]")
	}
	return strings.Join(parts, " ")
}

// uctTests and ucpTests are the tests of both releases; get_bw is that of the current one alone.
const (
	uctTests = "am_lat put_lat add_lat get fadd swap cswap am_bw put_bw get_bw add_mr"
	ucpTests = "tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap stream_bw stream_lat ucp_am_lat ucp_am_bw"
)

// uct selects shared memory for tests of UCT, in the names of UCX.
const uct = "-x posix -d memory "

// allLines returns the table of lines. -n and -w in front of each keep the runs short.
func allLines() []line {
	var lines []line
	add := func(group string, texts ...string) {
		for _, t := range texts {
			lines = append(lines, line{group: group, args: strings.Fields("-v -f -n 20 -w 2 " + t)})
		}
	}
	for t := range strings.FieldsSeq(uctTests) {
		add(groupTests, uct+"-t "+t, uct+"-D bcopy -t "+t)
	}
	for t := range strings.FieldsSeq(ucpTests) {
		add(groupTests, "-t "+t, "-s 4 -t "+t, "-s 100000 -t "+t)
	}
	add(groupOptions, uctOptions()...)
	add(groupOptions, ucpOptions()...)
	lines = append(lines, line{group: groupOptions, args: strings.Fields("-6 -v -f -n 20 -t tag_lat"), server: []string{"-6"}})
	for _, form := range []string{"", "-f", "-v", "-N", "-f -N", "-v -N", "-f -T 2", "-v -T 2", "-q", "-f -R 99", "-v -R 12.5", "-f -I", "-f -X"} {
		lines = append(lines, line{group: groupOutput, args: strings.Fields("-n 2000 -t tag_bw " + form)})
	}
	for _, t := range []string{"-t tag_lat", "-t tag_bw", "-t ucp_get", "-t am_lat -x self -d memory0", "-t put_bw -x self -d memory0", "-t tag_lat -T 2"} {
		lines = append(lines, line{group: groupOptions, args: strings.Fields("-l -v -f -n 20 " + t), alone: true})
	}
	for _, t := range []string{"-h", "-l", "-l -t nonsense", "-l -t", "-l -Q", "-l -t tag_lat host", "-l -t tag_lat -b /nonexistent"} {
		lines = append(lines, line{group: groupBad, args: strings.Fields(t), alone: true})
	}
	add(groupBad, "", "-t nonsense", "-t tag_la", "-t tag_lat -M x", "-t tag_lat -E x", "-t tag_lat -D x", "-t tag_lat -m x", "-t tag_lat -R 101",
		"-t tag_lat -r x", "-t tag_lat -s x", "-t am_lat -A x", "-t tag_lat -Q", "-t tag_lat -n", "-t ucp_fadd -s 16", "-t ucp_get -s 0",
		"-t am_lat -x posix -d nonsense", "-t am_lat -x nonsense -d memory", "-t am_lat", uct+"-t am_lat -s 4", uct+"-t put_lat -s 0", uct+"-t am_lat -s 100000")
	return append(lines, batchLines()...)
}

func uctOptions() []string {
	var texts []string
	for _, o := range []string{
		"am_lat -s 64", "am_lat -D short -s 64", "am_lat -D shortiov -s 64", "am_lat -D bcopy -s 64", "am_lat -D zcopy -s 64", "am_bw -D shortiov -s 64",
		"am_bw -W 4", "am_bw -W 4 -O 8", "am_lat -D bcopy -H 16 -s 64", "am_lat -A thread", "am_lat -A thread_spinlock", "am_lat -A thread_mutex", "am_lat -A signal",
		"put_bw -B", "put_bw -o", "put_bw -O 4", "put_lat -D zcopy -s 64", "add_mr -s 4", "fadd -s 4", "get -D bcopy -s 64", "get_bw -D bcopy -s 64 -O 4",
	} {
		texts = append(texts, uct+"-t "+o)
	}
	return texts
}

func ucpOptions() []string {
	return []string{
		"-t tag_lat -s 0", "-t tag_lat -s 64", "-t tag_lat -s 8k", "-t tag_lat -s 16,48", "-t tag_lat -s 16:2 -D iov", "-t tag_lat -m host", "-t tag_lat -m host,host",
		"-t tag_lat -m cuda", "-t tag_lat -m host,cuda-managed", "-t tag_lat -n 1", "-t tag_lat -w 0", "-t tag_lat -c 0", "-t tag_lat -c 9999",
		"-t tag_bw -O 4", "-t tag_bw -O 0", "-t tag_lat -i 0", "-t ucp_put_bw -o", "-t ucp_get -o", "-t tag_lat -B", "-t tag_lat -R 99.9", "-t tag_lat -q",
		"-t tag_lat -P 0", "-t tag_lat -I", "-t tag_lat -E poll", "-t tag_lat -E sleep", "-t tag_bw -I -E sleep", "-t tag_lat -T 1", "-t tag_lat -T 2",
		"-t tag_lat -T 2 -M multi", "-t tag_bw -T 2 -M serialized", "-t tag_lat -T 2:1", "-t tag_lat -M single", "-t tag_lat -M serialized", "-t tag_lat -M multi",
		"-t tag_lat -D contig", "-t tag_lat -D contig,contig", "-t tag_lat -D iov", "-t tag_lat -D iov,contig", "-t tag_lat -D contig,iov", "-t tag_bw -D iov,iov",
		"-t ucp_put_bw -D sgl", "-t tag_lat -C", "-t tag_bw -C", "-t tag_lat -U", "-t tag_bw -U", "-t stream_bw -r recv", "-t stream_lat -r recv_data", "-t tag_lat -r recv",
		"-t tag_lat -e", "-t tag_lat -e none", "-t tag_lat -e peer", "-t tag_lat -e failover", "-t ucp_am_lat -H 16", "-t ucp_am_bw -H 64 -s 100000",
		"-t ucp_am_lat -y", "-t tag_lat -z", "-t ucp_put_bw -z", "-t tag_lat -V", "-t tag_lat -X", "-t tag_lat -K mlx5_0:1", "-t ucp_put_bw -a host", "-t ucp_put_bw -a cuda:0",
		"-t ucp_put_bw -L thread", "-t ucp_put_bw -L warp", "-t ucp_put_bw -F 64", "-t ucp_put_bw -Y random", "-t ucp_am_bw -g 127.0.0.1", "-t ucp_am_bw -G 127.0.0.1:1338",
		"-t tag_lat -x rc", "-t tag_lat -d memory", "-t tag_lat -W 4", "-t tag_lat -A signal", "-t tag_lat -H 8",
	}
}

// batchLines returns lines of batch files with the options that those of UCX 1.13 and of its current
// release have, one line a file, and files of several lines.
func batchLines() []line {
	var lines []line
	add := func(group, args string, texts ...string) {
		lines = append(lines, line{group: group, args: strings.Fields("-v -f -w 2 " + args), files: texts})
	}
	for size := 8; size <= 64<<20; size *= 2 {
		add(groupSizes, "-t tag_bw", fmt.Sprintf("%d -s %d -n 20", size, size))
	}
	for _, sizes := range []string{"512,512", "4096,4096", "3000,3000,8192,8192"} {
		add(groupSizes, "-t tag_bw -D iov,contig", "pieces -s "+sizes+" -n 20 -i 8192")
	}
	for t := range strings.FieldsSeq("put_bw put_lat am_lat am_bw") {
		for layout := range strings.FieldsSeq("short shortiov bcopy zcopy") {
			if layout != "shortiov" || t[0] == 'a' {
				add(groupTypes, uct+"-n 20", "type -t "+t+" -D "+layout)
			}
		}
	}
	for t := range strings.FieldsSeq("get,-D,bcopy get,-D,zcopy add_lat add_mr fadd swap cswap") {
		add(groupTypes, uct+"-n 20", "type -t "+strings.ReplaceAll(t, ",", " "))
	}
	for _, t := range ucpTypes() {
		add(groupTypes, "-n 20", "type "+t)
	}
	for tl := range strings.FieldsSeq("rc_verbs rc_mlx5") {
		add(groupTypes, "-n 20 -t am_lat -d mlx5_0:1", "transport -x "+tl)
	}
	ab := "a -t tag_lat\nb -t ucp_put_bw -O 4\n"
	add(groupFiles, "-n 20", "# comment\n\n   \t\n"+ab)
	add(groupFiles, "-n 20", ab, "8 -s 8\n64 -s 64 -n 10\n")
	add(groupFiles, "-n 20", "x -t tag_lat -m cuda\n"+ab)
	add(groupFiles, "-n 20", "a -t tag_lat\nx -t tag_lat -m cuda\nb -t tag_bw\n")
	add(groupFiles, "-n 20", "a -t tag_lat\nx -t nonsense\nb -t tag_bw\n")
	add(groupFiles, "-n 20", "a -t tag_lat\nx -t ucp_get -s 0\nb -t tag_bw\n")
	add(groupFiles, "-n 20", "a -t tag_lat\nx -t tag_lat -Q\nb -t tag_bw\n")
	add(groupFiles, "-n 20", "# nothing\n")
	add(groupFiles, "-n 20", "a -t tag_lat # a comment behind\n")
	lines = append(lines,
		line{group: groupFiles, args: strings.Fields("-n 20 -w 2 -f"), files: []string{ab}},
		line{group: groupFiles, args: strings.Fields("-n 20 -w 2"), files: []string{ab}},
		line{group: groupFiles, args: strings.Fields("-n 20 -w 2 -N"), files: []string{ab, "8 -s 8\n"}})
	return lines
}

// ucpTypes are the options of UCX's files of UCP tests.
func ucpTypes() []string {
	texts := []string{
		"-t tag_bw -D contig,contig -z", "-t tag_sync_lat", "-t tag_lat -U", "-t tag_lat -C", "-t ucp_am_bw -w 0 -n 20 -s 8192",
		"-t ucp_put_lat -m cuda -s 8 -n 20", "-t ucp_put_bw -m cuda -s 1024 -n 20 -T 32", "-t ucp_put_bw -m cuda -s 1024 -n 20 -T 32 -L warp",
	}
	for _, t := range []string{"tag_lat", "tag_bw"} {
		for _, layout := range []string{"iov,contig", "iov,iov", "contig,contig"} {
			texts = append(texts, "-t "+t+" -D "+layout)
			if t == "tag_lat" {
				texts = append(texts, "-t tag_lat -D "+layout+" -T 2")
			}
		}
		for _, m := range []string{"cuda,cuda", "cuda,host", "host,cuda", "cuda-managed"} {
			texts = append(texts, "-t "+t+" -D contig,contig -m "+m, "-I -E sleep -t "+t+" -D contig,contig -m "+m)
		}
	}
	for _, t := range []string{"stream_bw", "stream_lat"} {
		for _, r := range []string{"recv", "recv_data"} {
			texts = append(texts, "-t "+t+" -r "+r, "-t "+t+" -r "+r+" -m cuda")
		}
	}
	for t := range strings.FieldsSeq("ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap") {
		for _, m := range []string{"", " -m cuda,cuda", " -m host,cuda", " -m cuda,host"} {
			texts = append(texts, "-t "+t+m)
		}
	}
	for t := range strings.FieldsSeq("ucp_put_lat ucp_put_bw ucp_get") {
		for _, layout := range []string{"-D iov,contig", "-D iov,iov", "-D iov,iov -i 2048", "-D sgl -m host,host"} {
			texts = append(texts, "-t "+t+" "+layout+" -s 1024,1024,1024,1024 -n 20")
		}
	}
	return texts
}

// linesOf returns each line of the batch files in dir as a file of its own. Lines without a test are
// run with tag_bw.
func linesOf(dir string) ([]line, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, path := range paths {
		if filepath.Base(path) == "README" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(strings.NewReader(string(text)))
		for sc.Scan() {
			words := strings.Fields(sc.Text())
			if len(words) == 0 || words[0][0] == '#' {
				continue
			}
			args := "-v -f -n 20 -w 2 "
			switch {
			case slices.Contains(words, "-x"):
				args += "-t am_lat -d mlx5_0:1"
			case !slices.Contains(words, "-t"):
				args += "-t tag_bw"
			case strings.HasSuffix(path, "_uct"):
				args += uct
			}
			lines = append(lines, line{group: "`" + filepath.Base(path) + "`", args: strings.Fields(args), files: []string{sc.Text() + "\n"}})
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("-config %s holds no batch line", dir)
	}
	return lines, nil
}
