#!/usr/bin/env bash
# Makes a .deb of an installed tree: tools/package/deb.sh TREE OUT VERSION GLIBC
#
# The programs in /usr/bin, the demo model in /usr/share/fathom, a systemd unit that nobody starts before its key file
# is there, the manual pages, completions.
set -euo pipefail
tree=$1 out=$2 version=$3 glibc=$4
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root/usr/lib/systemd/system" "$root/DEBIAN" "$root/usr/share/zsh"
cp -r "$tree/bin" "$tree/share" "$root/usr/"
mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
sed 's#/usr/local/#/usr/#g' "$tree/share/fathom/deploy/fathom.service" >"$root/usr/lib/systemd/system/fathom.service"
doc=$root/usr/share/doc/fathom
{ echo "Fathom. Licence:"; echo; cat "$doc/LICENSE"; } >"$doc/copyright"
rm "$doc/LICENSE"
gzip -9n "$doc/CHANGELOG.md" "$root"/usr/share/man/man1/*.1
mv "$doc/CHANGELOG.md.gz" "$doc/changelog.gz"
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f -exec chmod 644 {} +
chmod 755 "$root"/usr/bin/*

cat >"$root/DEBIAN/control" <<CONTROL
Package: fathom
Version: $version
Architecture: $architecture
Maintainer: The Fathom authors <fathom@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: libc6 (>= $glibc), libgcc-s1, libssl3t64 | libssl3
Suggests: libucx0, libzmq5
Description: OpenAI-compatible server for the DeepSeek family of models
 One native program that serves a Hugging Face checkpoint over HTTP, on an NVIDIA
 Hopper GPU or on a CPU. It needs no Python. A small demo model is inside:
 fathom serve --model-path demo
CONTROL
for script in postinst postrm; do
  cat >"$root/DEBIAN/$script" <<'SCRIPT'
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload || true
SCRIPT
done
cat >"$root/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop fathom.service || true; fi
SCRIPT
chmod 755 "$root"/DEBIAN/p*
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/fathom_${version}_$architecture.deb" >/dev/null
