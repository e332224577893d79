/* NoXar.c - libarchive's archive names its writer of xar, which is never called and would need libxml2: no program could be
 * linked with libtrun. */
struct archive;
__attribute__((visibility("hidden"))) int archive_write_set_format_xar(struct archive *a) {
  (void)a;
  return -30; /* ARCHIVE_FATAL */
}
