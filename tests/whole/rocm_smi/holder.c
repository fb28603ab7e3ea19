/* Holds ROCm SMI's mutex in the file argv[1] until standard input ends. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int file = argc == 2 ? open(argv[1], O_RDWR) : -1;
  if (file < 0) return 1;
  void *mutex = mmap(0, sizeof(pthread_mutex_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mutex == MAP_FAILED) return 2;
  int status = pthread_mutex_lock(mutex);
  if (status == EOWNERDEAD) status = pthread_mutex_consistent(mutex);
  if (status != 0) return 3;
  puts("held");
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return 0;
}
