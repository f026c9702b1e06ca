//go:build linux && cgo && ibverbs

#include "shim.h"

#include <stdlib.h>

void goucx_nothing(void) {}

static int stub_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)bad;
	while (wr)
		wr = wr->next;
	return 0;
}

static int stub_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)bad;
	while (wr)
		wr = wr->next;
	return 0;
}

static int stub_poll_empty(struct ibv_cq *c, int n, struct ibv_wc *wcs)
{
	(void)c, (void)n, (void)wcs;
	return 0;
}

static int stub_poll_full(struct ibv_cq *c, int n, struct ibv_wc *wcs)
{
	for (int i = 0; i < n; i++)
		wcs[i] = (struct ibv_wc){ .wr_id = (uint64_t)i, .qp_num = (uint32_t)c->cqe, .opcode = IBV_WC_SEND };
	return n;
}

static struct ibv_context *stub_context(void)
{
	struct ibv_context *c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	c->ops.post_send = stub_post_send;
	c->ops.post_recv = stub_post_recv;
	return c;
}

struct ibv_qp *goucx_stub_qp(void)
{
	struct ibv_qp *q = calloc(1, sizeof(*q));
	if (!q)
		abort();
	q->context = stub_context();
	return q;
}

struct ibv_cq *goucx_stub_cq(int full)
{
	struct ibv_cq *c = calloc(1, sizeof(*c));
	if (!c)
		abort();
	c->context = stub_context();
	c->context->ops.poll_cq = full ? stub_poll_full : stub_poll_empty;
	c->cqe = 7;
	return c;
}

void goucx_stub_free(struct ibv_qp *q, struct ibv_cq *empty, struct ibv_cq *full)
{
	free(q->context);
	free(q);
	free(empty->context);
	free(empty);
	free(full->context);
	free(full);
}
