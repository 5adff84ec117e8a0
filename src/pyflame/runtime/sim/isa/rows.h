/* The forms of vector.h once more, as rows of a table. */
#undef V1
#undef V1S
#undef V2
#undef V3
#undef V4
#undef V2M
#undef V3M
#undef CMP
#undef P2
#undef P3
#undef Q2
#undef Q3
#undef HAND
#define V1(NAME, D, A, ...) {#NAME, NAME, #D, #A},
#define V1S V1
#define V2(NAME, D, A, B, ...) {#NAME, NAME, #D, #A " " #B},
#define V3(NAME, D, A, B, C, ...) {#NAME, NAME, #D, #A " " #B " " #C},
#define V4(NAME, D, A, B, C, E, ...) {#NAME, NAME, #D, #A " " #B " " #C " " #E},
#define V2M(NAME, D, A, B, ...) {#NAME, NAME, #D " MASK", #A " " #B},
#define V3M(NAME, D, A, B, C, ...) {#NAME, NAME, #D " MASK", #A " " #B " " #C},
#define CMP(NAME, A, B, ...) {#NAME, NAME, "MASK", #A " " #B},
#define P2(NAME, D, A, B, ...) {#NAME, NAME, "PK_" #D, "PK_" #A " PK_" #B},
#define P3(NAME, D, A, B, C, ...) {#NAME, NAME, "PK_" #D, "PK_" #A " PK_" #B " PK_" #C},
#define Q2 P2
#define Q3 P3
#define HAND(NAME, D, S) {#NAME, NAME, D, S},
