// Package sharing plans which threads of a process share which communication resources: device
// contexts, thread domains, queue pairs and completion queues.
//
// A [Policy] is a function of data: the number of threads and the limits of the device in, a [Plan]
// out. The package creates nothing. Package ucp plans by it in Worker.NewThread, and package
// ucp/sharing/objects creates the objects of a plan on a verbs device. All values are immutable data
// once they are made, so any goroutine may use them. Start reading at Plan.
//
// Source: "Scalable Communication Endpoints for MPI+Threads Applications" (Zambre,
// Chandramowlishwaran, Balaji), sections V and VI.
package sharing
