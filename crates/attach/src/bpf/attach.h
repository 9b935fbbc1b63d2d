/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the program shares with ../maps.rs, which has the same types. */
#ifndef SERPENT_ATTACH_H
#define SERPENT_ATTACH_H

/* Seven bands for responses, of three ranks each. Rank 0 is for what no response may delay. */
#define RANKS 22
#define CLASSES 7
#define PORTS 16
#define STRANGERS 65536
/* Four cells an octave. */
#define SIZE_CELLS 256

/* Bytes of a packet that are looked at for heads at once: a power of two. A head of several packets is read to its end. */
#define HEAD_BYTES 2048
/* Most such parts of a packet. A packet of segmentation offload may hold several responses. */
#define PARTS 8
#define AT_A_TIME 128
#define MOST_PAYLOAD 0x80000
/* Half of the sequence numbers. */
#define FAR 0x7fff0000u
/* Memory of a packet beyond its length: struct sk_buff, its shared part, and the heads. Measured: 1,280 at most. */
#define OWN_TRUESIZE 1792

struct class {
	__u64 cgroup;          /* 0: any */
	__u32 by_mark, mark, mark_mask;
	__u32 port;            /* 0: any */
	__u32 by_source;
	__u32 source[4], source_mask[4];
	__u32 first_rank, ranks;
	__u32 cutoffs[RANKS];  /* rank i holds what has less than cutoff i left, and no less than cutoff i - 1 */
	__u32 pad;
};

struct settings {
	__u32 port_count, class_count, subranks, last_rank, foreign_rank, by_cgroup;
	__u32 ports[PORTS];
	struct class classes[CLASSES];
};

/* What a server of Serpent's tells of the response that a connection sends; it writes this through the socket. */
struct told {
	__u64 bytes;    /* left of the response at `offset`; with TOLD_SENT: sent of it before `offset` */
	__u32 offset;   /* in all that the connection sends: from here on this holds. The low 32 bits */
	__u8 class;     /* of the response, among so many in strict order */
	__u8 classes;   /* never 0 */
	__u8 flags;
	__u8 pad;
};
/* The last words, in the order of their bytes: some may be of bytes that still wait in the socket. */
#define WORDS 4
struct words {
	struct told word[WORDS]; /* those behind the last one are empty */
};
#define TOLD_NEW 1  /* the first word of its response */
#define TOLD_SENT 2 /* ranked by the bytes sent */

struct counters {
	__u64 known, unknown;    /* responses with and without a length */
	__u64 control;           /* packets of our ports without data */
	__u64 foreign;           /* other programs' packets */
	__u64 strangers;         /* packets whose socket is not here */
	__u64 held;              /* packets that stay behind others of their connection */
	__u64 lost;              /* packets without memory for their connection */
	__u64 packets[RANKS], bytes[RANKS];
	__u64 sizes[SIZE_CELLS]; /* of responses */
};

#endif
