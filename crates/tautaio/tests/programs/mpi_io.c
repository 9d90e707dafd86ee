/* SPDX-License-Identifier: MIT OR Apache-2.0
 * MPI-IO of two ranks: nonblocking accesses by offset, by view, by shared pointer and collective ones, each read back.
 * ROMIO, which MPICH has, carries out those that don't block with <aio.h>. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is needed of mpi.h, as MPICH's common ABI has it (libmpich.so.12): its development files bring a compiler for
 * Fortran along, and are needed for nothing else. */
typedef int MPI_Comm, MPI_Datatype, MPI_Request, MPI_Info;
typedef long MPI_Offset;
typedef struct ADIOI_FileD *MPI_File;
typedef struct {
    int count_low, count_high_and_cancelled, source, tag, error;
} MPI_Status;

#define MPI_COMM_WORLD 0x44000000
#define MPI_BYTE 0x4c00010d
#define MPI_INFO_NULL 0x1c000000
enum { MPI_MODE_CREATE = 1, MPI_MODE_RDWR = 8 };

int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Abort(MPI_Comm, int);
int MPI_Comm_rank(MPI_Comm, int *);
int MPI_Comm_size(MPI_Comm, int *);
int MPI_Barrier(MPI_Comm);
int MPI_Wait(MPI_Request *, MPI_Status *);
int MPI_Waitall(int, MPI_Request *, MPI_Status *);
int MPI_Test(MPI_Request *, int *, MPI_Status *);
int MPI_Get_count(const MPI_Status *, MPI_Datatype, int *);
int MPI_Type_vector(int, int, int, MPI_Datatype, MPI_Datatype *);
int MPI_Type_commit(MPI_Datatype *);
int MPI_Type_free(MPI_Datatype *);
int MPI_File_open(MPI_Comm, const char *, int, MPI_Info, MPI_File *);
int MPI_File_close(MPI_File *);
int MPI_File_sync(MPI_File);
int MPI_File_set_view(MPI_File, MPI_Offset, MPI_Datatype, MPI_Datatype, const char *, MPI_Info);
int MPI_File_iwrite_at(MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Request *);
int MPI_File_iread_at(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *);
int MPI_File_iwrite_at_all(MPI_File, MPI_Offset, const void *, int, MPI_Datatype, MPI_Request *);
int MPI_File_iread_at_all(MPI_File, MPI_Offset, void *, int, MPI_Datatype, MPI_Request *);
int MPI_File_iwrite_shared(MPI_File, const void *, int, MPI_Datatype, MPI_Request *);

enum { RANKS = 2, PIECES = 24, PIECE = 40000, ALL = PIECES * PIECE };

#define HOLDS(claim)                                                                                                  \
    do {                                                                                                              \
        if (!(claim)) {                                                                                               \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #claim);                                        \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                                             \
        }                                                                                                             \
    } while (0)

static int rank;
static unsigned char written[ALL], got[ALL];
static MPI_Request requests[PIECES];
static MPI_Status statuses[PIECES];

/* Bytes of which each rank, round and place has its own. */
static void fill(unsigned char *bytes, int of_rank, int round)
{
    for (int place = 0; place < ALL; place++)
        bytes[place] = (unsigned char)(place * 7 + place / 251 + of_rank * 101 + round * 31);
}

static void wait_for_pieces(void)
{
    HOLDS(MPI_Waitall(PIECES, requests, statuses) == 0);
    for (int piece = 0; piece < PIECES; piece++) {
        int count;
        HOLDS(MPI_Get_count(&statuses[piece], MPI_BYTE, &count) == 0 && count == PIECE);
    }
}

/* Other ranks see what was written after this. */
static void settle(MPI_File file)
{
    HOLDS(MPI_File_sync(file) == 0 && MPI_Barrier(MPI_COMM_WORLD) == 0 && MPI_File_sync(file) == 0);
}

/* Pieces of the ranks in turn, all under way at a time; each rank reads the other's. */
static void by_offset(MPI_File file)
{
    int other = 1 - rank;

    fill(written, rank, 0);
    for (int piece = 0; piece < PIECES; piece++)
        HOLDS(MPI_File_iwrite_at(file, (MPI_Offset)(piece * RANKS + rank) * PIECE, written + piece * PIECE, PIECE,
                                 MPI_BYTE, &requests[piece]) == 0);
    wait_for_pieces();
    settle(file);
    for (int piece = 0; piece < PIECES; piece++)
        HOLDS(MPI_File_iread_at(file, (MPI_Offset)(piece * RANKS + other) * PIECE, got + piece * PIECE, PIECE, MPI_BYTE,
                                &requests[piece]) == 0);
    wait_for_pieces();
    fill(written, other, 0);
    HOLDS(memcmp(got, written, ALL) == 0);
}

/* The same by a view of every second piece, in collective accesses, which are tested for until they are complete. */
static void by_view(MPI_File file)
{
    MPI_Datatype every_second;
    MPI_Request request;
    MPI_Status status;

    HOLDS(MPI_Type_vector(PIECES, PIECE, PIECE * RANKS, MPI_BYTE, &every_second) == 0);
    HOLDS(MPI_Type_commit(&every_second) == 0);
    for (int reads = 0; reads < 2; reads++) {
        int mine = reads ? 1 - rank : rank, done = 0, count;
        HOLDS(MPI_File_set_view(file, (MPI_Offset)mine * PIECE, MPI_BYTE, every_second, "native", MPI_INFO_NULL) == 0);
        fill(written, mine, 1);
        if (reads)
            HOLDS(MPI_File_iread_at_all(file, 0, got, ALL, MPI_BYTE, &request) == 0);
        else
            HOLDS(MPI_File_iwrite_at_all(file, 0, written, ALL, MPI_BYTE, &request) == 0);
        while (!done)
            HOLDS(MPI_Test(&request, &done, &status) == 0);
        HOLDS(MPI_Get_count(&status, MPI_BYTE, &count) == 0 && count == ALL);
        settle(file);
    }
    HOLDS(memcmp(got, written, ALL) == 0);
    HOLDS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL) == 0);
    HOLDS(MPI_Type_free(&every_second) == 0);
}

/* Records of both ranks one after the other, in any order; each is there once. */
static void by_shared_pointer(MPI_File file)
{
    static unsigned char all[RANKS * PIECES * 4];
    int seen[RANKS] = {0, 0};
    unsigned char records[PIECES][4];

    for (int piece = 0; piece < PIECES; piece++) {
        memcpy(records[piece], (unsigned char[]){(unsigned char)rank, (unsigned char)piece, 0xaa, 0x55}, 4);
        HOLDS(MPI_File_iwrite_shared(file, records[piece], 4, MPI_BYTE, &requests[piece]) == 0);
    }
    HOLDS(MPI_Waitall(PIECES, requests, statuses) == 0);
    settle(file);
    HOLDS(MPI_File_iread_at(file, 0, all, sizeof all, MPI_BYTE, &requests[0]) == 0);
    HOLDS(MPI_Wait(&requests[0], &statuses[0]) == 0);
    for (int record = 0; record < RANKS * PIECES; record++) {
        unsigned char *bytes = all + record * 4;
        HOLDS(bytes[0] < RANKS && bytes[2] == 0xaa && bytes[3] == 0x55);
        /* Those of a rank in the order of its calls. */
        HOLDS(bytes[1] == seen[bytes[0]]++);
    }
}

int main(int count, char **arguments)
{
    int ranks;
    MPI_File file;

    HOLDS(MPI_Init(&count, &arguments) == 0);
    HOLDS(MPI_Comm_rank(MPI_COMM_WORLD, &rank) == 0 && MPI_Comm_size(MPI_COMM_WORLD, &ranks) == 0);
    HOLDS(ranks == RANKS && count == 2);
    HOLDS(MPI_File_open(MPI_COMM_WORLD, arguments[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == 0);
    by_offset(file);
    by_view(file);
    by_shared_pointer(file);
    HOLDS(MPI_File_close(&file) == 0);
    if (rank == 0)
        printf("all read back\n");
    HOLDS(MPI_Finalize() == 0);
    return 0;
}
