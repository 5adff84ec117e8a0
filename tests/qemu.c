/* Runs one call of a plan on the CPU that QEMU emulates: tests/qemu.py writes the file that names kernels and memory.
 *
 * All numbers are 64 bits long. Each region of memory ends where a page begins that nobody may touch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pf_abi.h"

static FILE *file;

static int64_t number(void) {
  int64_t n;
  if (fread(&n, 8, 1, file) != 1) exit(2);
  return n;
}

static void *bytes(void *to, int64_t count) {
  if (fread(to, 1, count, file) != (size_t)count) exit(2);
  return to;
}

static char *region(int64_t size) {
  const int64_t page = 4096, whole = (size + page - 1) / page * page;
  char *at = mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || mprotect(at + whole, page, PROT_NONE)) exit(3);
  memset(at, 255, whole); /* NaN: what nobody wrote shows */
  return at + whole - (size + 63) / 64 * 64;
}

static int64_t function(void) {
  char path[1024] = {0}, name[256] = {0};
  bytes(path, number()), bytes(name, number());
  void *library = dlopen(path, RTLD_NOW), *at = library ? dlsym(library, name) : NULL;
  if (!at) fprintf(stderr, "%s\n", dlerror()), exit(4);
  return (int64_t)(intptr_t)at;
}

int main(int count, char **names) {
  (void)count;
  file = fopen(names[1], "rb");
  const int64_t regions = number();
  int64_t size[regions];
  char *at[regions];
  for (int64_t i = 0; i < regions; i++) size[i] = number(), at[i] = region(size[i]), bytes(at[i], number());
  const int64_t slots = number();
  char *slot[slots];
  for (int64_t i = 0; i < slots; i++) slot[i] = at[number()], slot[i] += number();
  int64_t length = number(), *cells = bytes(malloc(8 * length), 8 * length);
  for (int64_t left = number(); left; left--) cells[number()] = function(); /* epilogues */
  length = number();
  const pf_word *uniforms = bytes(malloc(8 * length + 8), 8 * length);
  int64_t record[3] = {0};
  for (int64_t rows = number(); rows; rows--) {
    const pf_kernel kernel = (pf_kernel)(intptr_t)function();
    const int64_t iterations = number(), buffers = number(), *pair = cells + number(), *args = cells + number();
    char *buffer[buffers + 1];
    buffer[0] = (char *)record;
    for (int64_t i = 0; i < buffers; i++) buffer[i + 1] = slot[pair[2 * i]] + pair[2 * i + 1];
    kernel(buffer + 1, args, uniforms, 0, iterations, 0);
  }
  FILE *out = fopen(names[2], "wb");
  for (int64_t i = 0; i < regions; i++) fwrite(at[i], 1, size[i], out);
  return fclose(out) || record[0];
}
