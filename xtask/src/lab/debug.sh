# Run in the workshop of the debug kernel: builds it of its source, and leaves there what builds modules for it. $1: compilers at once.
set -e
export KBUILD_BUILD_USER=lab KBUILD_BUILD_HOST=lab
cd /usr/src
tar -xf linux-source-*.tar.xz
rm linux-source-*.tar.xz
cd linux-source-*
make -s KCONFIG_ALLCONFIG=/bench/debug.config allnoconfig
# What Kconfig does not know, or something else forbids, it leaves out without a word.
grep '^CONFIG_' /bench/debug.config >wanted
if grep -vxFf .config wanted >&2; then
    echo 'this is wanted and can not be had' >&2
    exit 1
fi
make -s -j"$1" bzImage modules
release=$(make -s kernelrelease)
modules=/lib/modules/$release
mkdir -p "$modules"
make -s run-command "KBUILD_RUN_COMMAND=scripts/package/install-extmod-build $modules/build"
cp arch/x86/boot/bzImage modules.builtin modules.builtin.modinfo modules.order /bench
echo "$release" >/bench/release
cd ..
rm -rf linux-source-*
