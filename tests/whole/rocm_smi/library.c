/* A stand-in for librocm_smi64 of ROCm 6: three indices, the last two of which are partitions of
   one GPU. What an index is to do is in the file DIRECTORY/fault<index>. */
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENTS = 1, NOT_SUPPORTED = 2, PERMISSION = 4, BUSY = 16 };

static uint64_t caps[3] = {750000000, 750000000, 750000000};

/* What the index is to do. */
static void told(uint32_t index, char text[32]) {
  char path[512];
  text[0] = 0;
  snprintf(path, sizeof path, "%s/fault%u", DIRECTORY, index);
  FILE *file = fopen(path, "r");
  if (file) {
    if (!fgets(text, 32, file)) text[0] = 0;
    fclose(file);
  }
}

/* Says which process hangs from now on. */
static void hangs(void) {
  FILE *hung = fopen(DIRECTORY "/hung", "w");
  if (hung) {
    fprintf(hung, "%d\n", getpid());
    fclose(hung);
  }
}

/* Writes to the driver's file: the kernel holds the call, also of a process that is killed. */
static uint32_t sticks(void) {
  int file = open(DIRECTORY "/driver", O_WRONLY);
  hangs();
  return write(file, "600000000\n", 10) < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* Does what the index is to do; what its calls then answer. */
static uint32_t fault(uint32_t index) {
  char text[32];
  told(index, text);
  if (!strcmp(text, "hang")) {
    hangs();
    for (;;) pause();
  }
  if (!strcmp(text, "stuck read")) return sticks();
  if (!strcmp(text, "slow")) usleep(400 * 1000);
  if (!strcmp(text, "segfault")) *(volatile int *)0 = 1;
  if (!strcmp(text, "exit")) exit(3);
  if (!strcmp(text, "busy")) return BUSY;
  if (!strcmp(text, "permission")) return PERMISSION;
  if (!strcmp(text, "unsupported")) return NOT_SUPPORTED;
  /* More than any buffer holds, on all that a library may write to. */
  if (!strcmp(text, "chatter"))
    for (int line = 0; line < 100000; line++) fputs("a line of chatter\n", line % 2 ? stdout : stderr);
  return SUCCESS;
}

uint32_t rsmi_init(uint64_t flags) { return SUCCESS; }
uint32_t rsmi_shut_down(void) { return SUCCESS; }

uint32_t rsmi_num_monitor_devices(uint32_t *count) {
  *count = 3;
  return SUCCESS;
}

uint32_t rsmi_dev_pci_id_get(uint32_t index, uint64_t *id) {
  *id = index == 0 ? 0x500 : 0x2600 | (uint64_t)(index - 1) << 28;
  return SUCCESS;
}

uint32_t rsmi_dev_unique_id_get(uint32_t index, uint64_t *id) {
  *id = 0xabcd + (index > 0);
  return SUCCESS;
}

uint32_t rsmi_dev_name_get(uint32_t index, char *name, size_t length) {
  snprintf(name, length, "Instinct %u", index);
  return SUCCESS;
}

uint32_t rsmi_dev_power_cap_get(uint32_t index, uint32_t sensor, uint64_t *cap) {
  uint32_t status = fault(index);
  *cap = caps[index];
  return status;
}

uint32_t rsmi_dev_power_cap_range_get(uint32_t index, uint32_t sensor, uint64_t *max, uint64_t *min) {
  *max = 750000000;
  *min = 100000000;
  return SUCCESS;
}

uint32_t rsmi_dev_power_cap_default_get(uint32_t index, uint64_t *cap) { return NOT_SUPPORTED; }

uint32_t rsmi_dev_power_cap_set(uint32_t index, uint32_t sensor, uint64_t cap) {
  if (cap > 750000000 || cap < 100000000) return INVALID_ARGUMENTS;
  char text[32];
  told(index, text);
  if (!strcmp(text, "stuck") && sticks() != SUCCESS) return NOT_SUPPORTED;
  uint32_t status = fault(index);
  if (status == SUCCESS) caps[index] = cap;
  return status;
}

uint32_t rsmi_dev_power_ave_get(uint32_t index, uint32_t sensor, uint64_t *power) {
  return NOT_SUPPORTED;
}

uint32_t rsmi_dev_current_socket_power_get(uint32_t index, uint64_t *power) {
  *power = 321500000;
  return SUCCESS;
}

uint32_t rsmi_dev_energy_count_get(uint32_t index, uint64_t *count, float *unit, uint64_t *time) {
  *count = 1000;
  *unit = NAN;
  return SUCCESS;
}

uint32_t rsmi_dev_temp_metric_get(uint32_t index, uint32_t sensor, uint32_t metric, int64_t *value) {
  /* Only an edge. */
  if (sensor != 0) return NOT_SUPPORTED;
  *value = metric == 0 ? 61000 : 95000;
  return SUCCESS;
}
