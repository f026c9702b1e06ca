package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
)

// batchLine is a test of a batch file: a name and options.
type batchLine struct {
	file string
	line int
	name string
	args []string
	err  error // not nil: the line cannot be read
}

// readBatch reads a batch file in the format of UCX's tool, extended by quotes.
func readBatch(file string) ([]batchLine, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("batch file: %w", err)
	}
	defer func() { _ = f.Close() }()
	var lines []batchLine
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		words, err := splitWords(sc.Text())
		if err != nil {
			words = strings.Fields(sc.Text())
		}
		if len(words) > 0 {
			lines = append(lines, batchLine{file, n, words[0], words[1:], err})
		}
	}
	if err := sc.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("batch file %s: a line is longer than %d bytes", file, bufio.MaxScanTokenSize)
	} else if err != nil {
		return nil, fmt.Errorf("batch file %s: %w", file, err)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("batch file %s holds no test", file)
	}
	return lines, nil
}

// splitWords splits at blanks. Text between ' or " stays together. A # at the beginning of a word
// begins a comment.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	open := false
	for _, c := range s {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, open = c, true
		case c == '#' && !open:
			return words, nil
		case c == ' ' || c == '\t' || c == '\r':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(c)
			open = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote is not closed")
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}
