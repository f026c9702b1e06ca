package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// errData: the data are not what the peer sent.
var errData = errors.New("wrong data")

// streamTurn is the number of different messages that a stream has. It is prime, so that the
// messages of a queue pair, and those of all queue pairs at a time, differ.
const streamTurn = 4093

// stream is a sequence of pseudo-random bytes that both sides know. Message k of queue pair q is a
// part of it, at an offset that depends on both.
type stream []byte

// Seeds of the streams of client and server.
const (
	clientSeed = 0x676f756378c11e57
	serverSeed = 0x676f7563785e17e5
)

// newStream returns a stream with messages of up to size bytes.
func newStream(seed uint64, size int) stream {
	s := make(stream, (size+streamTurn+7)/8*8)
	for i := 0; i < len(s); i += 8 {
		binary.LittleEndian.PutUint64(s[i:], splitMix64(seed+uint64(i)))
	}
	return s
}

// splitMix64 mixes the bits of x. Source: Steele, Lea, Flood: Fast splittable pseudorandom number
// generators, OOPSLA 2014.
func splitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// offset returns where message k of queue pair q begins.
func (s stream) offset(q, k int) int { return (61*k + 1361*q) % streamTurn }

// message returns message k of queue pair q.
func (s stream) message(q, k, size int) []byte { return s[s.offset(q, k):][:size] }

// compare returns an error that names the first byte in which got differs from want.
func compare(got, want []byte, what string) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d bytes, want %d: %w", what, len(got), len(want), errData)
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	return fmt.Errorf("%s: byte %d is %#02x, want %#02x: %w", what, i, got[i], want[i], errData)
}

// compareAll returns an error unless all bytes are want.
func compareAll(got []byte, want byte, what string) error {
	for i, c := range got {
		if c != want {
			return fmt.Errorf("%s: byte %d is %#02x, want %#02x: %w", what, i, c, want, errData)
		}
	}
	return nil
}
