// Package ucp is measured by a test.
package ucp

type Worker struct {
	queue
	a, b bool
	c    [2]bool
	in   struct{ d bool }
}

type queue struct{ n int }

func (q *queue) push() { q.n++ }

type pusher interface{ Push() }

func (w *Worker) Push() { w.once(1, 2, 3, 4, 5, 6); slow(w) }

// once is called once. Somebody gives it six numbers.
func (w *Worker) once(a, b, c, d, e, f int) { w.push() }

//go:noinline
func slow(w *Worker) { w.push() }
