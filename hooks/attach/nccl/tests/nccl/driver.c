/* Plays NCCL to a profiler plugin: driver PLUGIN SEED RANKS COLLECTIVES MODE
 *
 * Written from NVIDIA/nccl src/plugin/profiler.cc (031512fb) and src/enqueue.cc alone, as a process that has one
 * communicator for each rank: a thread of the user's launches its plans, and another delivers the kernels' events once
 * "the GPU" has stamped them, as NCCL's profiler thread does (before 2.31 the proxy's thread).
 *
 *   - Group, Coll and P2p events are sent for KernelCh's sake, whatever else the mask has; APIs' events are, too.
 *   - Tasks are stopped when they have been handed over, before their kernels run: a KernelCh event has a parent that
 *     has ended. The events of different channels and collectives come in any order.
 *   - Ranks keep step: a collective ends on none of them before it has begun on all.
 *   - A KernelCh event has no rank. In versions 4 and 5 NCCL converts descriptors on its stack and leaves what it does
 *     not set as it was.
 *   - MODE `lossy`: some kernels are never delivered (NCCL drops them where it can't allocate), stops come twice, and
 *     events go on after their communicator's end, as in NVIDIA/nccl#1992 and NVIDIA/nccl#2000.
 *
 * Prints a line for each collective that is played:
 *   communicator rank ranks sequence function bytes expected started stopped first-start last-stop
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interface.h"

#define CHANNELS 24
#define FUNCTIONS 4

static const char* const functions[FUNCTIONS] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"};
static const struct { const char* name; size_t bytes; } datatypes[] = {
  {"ncclFloat32", 4}, {"ncclBfloat16", 2}, {"ncclFloat8e4m3", 1}, {"ncclInt64", 8}};

typedef struct {
  void* handle; /* of the task */
  uint64_t start, stop;
  int channel;
  bool is_dropped, stops_twice;
} Kernel;

typedef struct {
  int rank, ranks, collectives;
  unsigned seed;
  bool is_lossy;
  uint64_t communicator;
  void* context;
  FILE* played;
  uint64_t sequence[FUNCTIONS];
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  Kernel* queue; /* grown by the user's thread, emptied by the profiler's */
  size_t queued, room;
  bool is_over;
  int progress;
} Rank;

#define IN_STEP 64

static Profiler* profiler;
static int mask; /* one for the process, as NCCL's */
static Rank* all;

static void fail(const char* why) {
  fprintf(stderr, "driver: %s\n", why);
  exit(1);
}

static void check(Result result) {
  if (result != 0) fail("the plugin returned an error");
}

static void say(int level, unsigned long flags, const char* file, int line, const char* format, ...) {
  va_list args;
  (void)level, (void)flags, (void)file, (void)line;
  va_start(args, format);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

static int random_of(Rank* rank, int below) { return rand_r(&rank->seed) % below; }

static Descriptor described(int type) {
  Descriptor descriptor;
  memset(&descriptor, VERSION <= 5 ? 0xA5 : 0, sizeof descriptor);
  descriptor.type = (Type)type;
  return descriptor;
}

static void* start(Rank* rank, Descriptor* descriptor) {
  void* handle = NULL;
  check(profiler->startEvent(rank->context, &handle, descriptor));
  return handle;
}

static void stop(void* handle) {
  if (handle) check(profiler->stopEvent(handle));
}

static void post(Rank* rank, Kernel kernel) {
  pthread_mutex_lock(&rank->mutex);
  /* A stream's queue is full. */
  while (rank->queued >= 512) {
    pthread_mutex_unlock(&rank->mutex);
    sched_yield();
    pthread_mutex_lock(&rank->mutex);
  }
  if (rank->queued == rank->room) {
    rank->room = rank->room ? 2 * rank->room : 256;
    rank->queue = realloc(rank->queue, rank->room * sizeof(Kernel));
    if (!rank->queue) fail("no memory");
  }
  rank->queue[rank->queued++] = kernel;
  pthread_cond_signal(&rank->cond);
  pthread_mutex_unlock(&rank->mutex);
}

/* One KernelCh event from its start to its stop. */
static void deliver(Rank* rank, Kernel* kernel) {
  Descriptor descriptor = described(KernelCh);
  descriptor.parentObj = kernel->handle;
  descriptor.kernelCh.channelId = (uint8_t)kernel->channel;
  descriptor.kernelCh.pTimer = kernel->start;
  void* handle = start(rank, &descriptor);
  if (!handle) return;
  StateArgs args;
  memset(&args, 0xA5, sizeof args);
  args.kernelCh.pTimer = kernel->stop;
  check(profiler->recordEventState(handle, KernelChStop, &args));
  stop(handle);
  if (kernel->stops_twice) {
    check(profiler->recordEventState(handle, KernelChStop, &args));
    stop(handle);
  }
}

static void* profile(void* argument) {
  Rank* rank = argument;
  unsigned seed = rank->seed ^ 0x5bd1e995;
  for (;;) {
    pthread_mutex_lock(&rank->mutex);
    while (rank->queued == 0 && !rank->is_over) pthread_cond_wait(&rank->cond, &rank->mutex);
    if (rank->queued == 0) {
      pthread_mutex_unlock(&rank->mutex);
      return NULL;
    }
    /* Any of those that have come so far: channels and collectives pass each other. */
    size_t window = rank->queued < 64 ? rank->queued : 64;
    size_t at = (size_t)rand_r(&seed) % window;
    Kernel kernel = rank->queue[at];
    memmove(rank->queue + at, rank->queue + at + 1, (--rank->queued - at) * sizeof(Kernel));
    pthread_mutex_unlock(&rank->mutex);
    if (!kernel.is_dropped) deliver(rank, &kernel);
  }
}

static void* play_collective(Rank* rank, void* group, void* api, int number) {
  int function = random_of(rank, FUNCTIONS);
  int datatype = random_of(rank, sizeof datatypes / sizeof *datatypes);
  size_t count = 1 + (size_t)random_of(rank, 1 << 20);
  int channels = 1 + random_of(rank, CHANNELS), first = random_of(rank, 64 - channels);
  uint64_t sequence = rank->sequence[function]++;
  Descriptor descriptor = described(Coll);
  descriptor.rank = rank->rank;
  descriptor.coll.seqNumber = sequence;
  descriptor.coll.func = functions[function];
  descriptor.coll.sendBuff = descriptor.coll.recvBuff = rank;
  descriptor.coll.count = count;
  descriptor.coll.root = 0;
  descriptor.coll.datatype = datatypes[datatype].name;
  descriptor.coll.nChannels = (uint8_t)channels;
  descriptor.coll.nWarps = 16;
  descriptor.coll.algo = "RING";
  descriptor.coll.proto = "SIMPLE";
#if VERSION == 4
  descriptor.parentObj = group;
#else
  descriptor.parentObj = api;
  descriptor.coll.parentGroup = group;
#endif
  (void)api;
  void* handle = start(rank, &descriptor);

  uint64_t begin = 1765223116000000000u + (uint64_t)number * 1000000 + (uint64_t)random_of(rank, 100000);
  uint64_t first_start = UINT64_MAX, last_stop = 0;
  int delivered = 0;
  for (int channel = first; channel < first + channels; channel++) {
    Kernel kernel = {
      .handle = handle,
      .start = begin + (uint64_t)random_of(rank, 5000),
      .stop = begin + 100000 + (uint64_t)random_of(rank, 50000),
      .channel = channel,
      .is_dropped = rank->is_lossy && random_of(rank, 50) == 0,
      .stops_twice = rank->is_lossy && random_of(rank, 10) == 0,
    };
    if (!kernel.is_dropped) {
      if (kernel.start < first_start) first_start = kernel.start;
      if (kernel.stop > last_stop) last_stop = kernel.stop;
      delivered++;
    }
    post(rank, kernel);
  }
  fprintf(rank->played, "%lx %d %d %lu %s %zu %d %d %d %lu %lu\n", (unsigned long)rank->communicator, rank->rank,
          rank->ranks, (unsigned long)sequence, functions[function], count * datatypes[datatype].bytes, channels,
          delivered, delivered, (unsigned long)(delivered ? first_start : 0), (unsigned long)last_stop);
  return handle;
}

/* A send or receive has KernelCh events as well. */
static void* play_transfer(Rank* rank) {
  Descriptor descriptor = described(P2p);
  descriptor.rank = rank->rank;
  descriptor.p2p.func = "Send";
  descriptor.p2p.datatype = "ncclFloat32";
  descriptor.p2p.count = 1000;
  descriptor.p2p.peer = (rank->rank + 1) % rank->ranks;
  void* handle = start(rank, &descriptor);
  Kernel kernel = {.handle = handle, .start = 17, .stop = 18, .channel = 1};
  post(rank, kernel);
  return handle;
}

/* One plan: what ncclGroupStart and ncclGroupEnd are around, mostly a single collective. */
static int play_plan(Rank* rank, int number) {
  int collectives = random_of(rank, 4) ? 1 : 1 + random_of(rank, 8);
  if (collectives > rank->collectives - number) collectives = rank->collectives - number;
  void *group_api = NULL, *api = NULL, *tasks[9];
#if VERSION >= 5
  Descriptor descriptor = described(GroupApi);
  descriptor.rank = rank->rank;
  descriptor.groupApi.graphCaptured = false;
  descriptor.groupApi.groupDepth = 1;
  group_api = start(rank, &descriptor);
  for (int at = 0; at < collectives; at++) {
    descriptor = described(CollApi);
    descriptor.rank = rank->rank;
    descriptor.parentObj = group_api;
    descriptor.collApi.func = "AllReduce";
    descriptor.collApi.datatype = "ncclFloat32";
    api = start(rank, &descriptor);
    stop(api);
  }
  if (group_api) {
    check(profiler->recordEventState(group_api, GroupStartApiStop, NULL));
    check(profiler->recordEventState(group_api, GroupEndApiStart, NULL));
  }
#endif
  Descriptor group_descriptor = described(Group);
  void* group = start(rank, &group_descriptor);
  int count = 0;
  while (count < collectives) {
    tasks[count] = play_collective(rank, group, api, number + count);
    count++;
  }
  if (random_of(rank, 5) == 0) tasks[count++] = play_transfer(rank);
  while (count > 0) stop(tasks[--count]);
  stop(group);
  stop(group_api);
  return collectives;
}

/* How far the slowest rank is. */
static int slowest(int ranks) {
  int least = INT_MAX;
  for (int at = 0; at < ranks; at++) {
    int progress = __atomic_load_n(&all[at].progress, __ATOMIC_RELAXED);
    if (progress < least) least = progress;
  }
  return least;
}

static void* play(void* argument) {
  Rank* rank = argument;
#if VERSION == 4
  check(profiler->init(&rank->context, &mask, "world", rank->communicator, 1, rank->ranks, rank->rank, say));
#else
  check(profiler->init(&rank->context, rank->communicator, &mask, "world", 1, rank->ranks, rank->rank, say));
#endif
  pthread_t thread;
  if (pthread_create(&thread, NULL, profile, rank)) fail("no thread");
  int wanted = __atomic_load_n(&mask, __ATOMIC_RELAXED);
  /* Without Coll or an event below it in the mask NCCL sends nothing of a collective. */
  for (int number = 0; (wanted & (Coll | KernelCh)) && number < rank->collectives;) {
    __atomic_store_n(&rank->progress, number, __ATOMIC_RELAXED);
    while (number > slowest(rank->ranks) + IN_STEP) sched_yield();
    number += play_plan(rank, number);
  }
  __atomic_store_n(&rank->progress, INT_MAX, __ATOMIC_RELAXED);
  pthread_mutex_lock(&rank->mutex);
  rank->is_over = true;
  pthread_cond_signal(&rank->cond);
  pthread_mutex_unlock(&rank->mutex);
  pthread_join(thread, NULL);
  void* last = NULL;
  if (rank->is_lossy) {
    Descriptor descriptor = described(KernelPhase);
    stop(start(rank, &descriptor));
    descriptor = described(1 << 30);
    stop(start(rank, &descriptor));
    stop((void*)0xdeadbeef);
    check(profiler->recordEventState((void*)(uintptr_t)-1, KernelChStop, NULL));
    Descriptor kernel = described(KernelCh);
    kernel.parentObj = (void*)0x123456789a;
    last = start(rank, &kernel);
  }
  if (rank->context) check(profiler->finalize(rank->context));
  if (rank->is_lossy) {
    StateArgs args;
    memset(&args, 0, sizeof args);
    check(profiler->recordEventState(last, KernelChStop, &args));
    Descriptor descriptor = described(Coll);
    descriptor.coll.func = NULL;
    descriptor.coll.datatype = NULL;
    stop(start(rank, &descriptor));
  }
  return NULL;
}

int main(int count, char** arguments) {
  if (count != 6) fail("PLUGIN SEED RANKS COLLECTIVES MODE");
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(dlerror());
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", VERSION);
  profiler = dlsym(library, symbol);
  if (!profiler) fail("the plugin lacks this version");
  int ranks = atoi(arguments[3]);
  all = calloc((size_t)ranks, sizeof(Rank));
  pthread_t* threads = calloc((size_t)ranks, sizeof(pthread_t));
  char** texts = calloc((size_t)ranks, sizeof(char*));
  size_t* sizes = calloc((size_t)ranks, sizeof(size_t));
  if (!all || !threads || !texts || !sizes) fail("no memory");
  for (int at = 0; at < ranks; at++) {
    all[at] = (Rank){
      .rank = at,
      .ranks = ranks,
      .collectives = atoi(arguments[4]),
      .seed = (unsigned)atoi(arguments[2]) * 1000 + (unsigned)at,
      .is_lossy = strcmp(arguments[5], "lossy") == 0,
      .communicator = 0xc0ffee00 + (uint64_t)atoi(arguments[2]),
      .mutex = PTHREAD_MUTEX_INITIALIZER,
      .cond = PTHREAD_COND_INITIALIZER,
      .played = open_memstream(&texts[at], &sizes[at]),
    };
    if (pthread_create(&threads[at], NULL, play, &all[at])) fail("no thread");
  }
  for (int at = 0; at < ranks; at++) {
    pthread_join(threads[at], NULL);
    fclose(all[at].played);
    fputs(texts[at], stdout);
  }
  /* NCCL closes the library with the last communicator. */
  if (dlclose(library)) fail("dlclose");
  /* Its threads may be inside a call even then. */
  if (!dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD)) fail("the plugin's code is gone");
  fflush(stdout);
  return 0;
}
