// Package bootstrap lets the processes of a job find each other: each gives some
// bytes, its worker's address or the key of its memory, and gets everybody's. It
// knows nothing of goucx, which takes plain bytes from anywhere; replace it by
// what your launcher has (PMI, MPI, etcd), or copy it.
//
// The environment says who a process is and where it meets the others:
//
//	JOB_RANK, JOB_SIZE  its number, from 0, and how many there are
//	JOB_DIR             an empty directory that all see, or
//	JOB_ADDR            host:port, where the process of rank 0 listens
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// maxGiven bounds what one process gives, in bytes: more is a mistake, or not one
// of us.
const maxGiven = 1 << 20

// Job is one process of a job. It belongs to one goroutine.
type Job struct {
	// Rank is the number of this process, from 0, and Size how many there are.
	Rank, Size int

	meet exchanger
}

// exchanger is a place where processes meet.
type exchanger interface {
	allgather(ctx context.Context, mine []byte) ([][]byte, error)
	close() error
}

// Join reads the environment and goes to the place where the processes meet. ctx
// bounds the wait for rank 0 to be there.
func Join(ctx context.Context) (*Job, error) {
	rank, err := number("JOB_RANK")
	if err != nil {
		return nil, err
	}
	size, err := number("JOB_SIZE")
	if err != nil {
		return nil, err
	}
	if rank >= size {
		return nil, fmt.Errorf("JOB_RANK %d is not below JOB_SIZE %d", rank, size)
	}
	j := &Job{Rank: rank, Size: size}
	switch dir, addr := os.Getenv("JOB_DIR"), os.Getenv("JOB_ADDR"); {
	case dir != "":
		j.meet = &directory{path: dir, rank: rank, size: size}
	case addr != "":
		j.meet, err = meetTCP(ctx, addr, rank, size)
	default:
		err = errors.New("neither JOB_DIR nor JOB_ADDR says where to meet the others")
	}
	if err != nil {
		return nil, fmt.Errorf("join as rank %d of %d: %w", rank, size, err)
	}
	return j, nil
}

// Allgather gives mine to everybody and gets what everybody gave, by rank. All
// call it, equally often.
//
// It only waits: no worker of this process makes progress meanwhile. So what
// another process waits for before its own Allgather must be done already.
func (j *Job) Allgather(ctx context.Context, mine []byte) ([][]byte, error) {
	if len(mine) > maxGiven {
		return nil, fmt.Errorf("allgather: %d bytes are more than %d", len(mine), maxGiven)
	}
	all, err := j.meet.allgather(ctx, mine)
	if err != nil {
		return nil, fmt.Errorf("allgather as rank %d of %d: %w", j.Rank, j.Size, err)
	}
	return all, nil
}

// Close leaves. The others' Allgather fails where it has not ended.
func (j *Job) Close() error { return j.meet.close() }

func number(name string) (int, error) {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("environment %s=%q is no number from 0", name, os.Getenv(name))
	}
	return n, nil
}
