# What builds of packages have in common: deploy/*/build source it with their own arguments, once `kind` names the
# builder's folder. It reads the options into target, version and output, and makes the directory work, which is removed
# at the end.
here=$PWD
here_script=$(realpath "$0")
cd "$(dirname "$0")/../.."

fail() {
  echo "deploy/$kind/build: $*" >&2
  exit 1
}

target=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
output=${CARGO_TARGET_DIR:-target}/$kind
programs=
while (($#)); do
  [[ $1 != --help ]] || { sed -n '2,/^set -/{/^#/p}' "$here_script" | cut -c3-; exit; }
  (($# > 1)) || fail "$1 wants a value"
  case $1 in
  --target) target=$2 ;;
  --programs) programs=$(cd "$here" && realpath "$2") ;;
  --version) version=$2 ;;
  --output) output=$(cd "$here" && realpath --canonicalize-missing "$2") ;;
  *) fail "unknown argument $1" ;;
  esac
  shift 2
done

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT

# lay_out ROOT: everything that is in a package of any kind.
lay_out() {
  local layout=(deploy/layout --target "$target")
  [[ -z $programs ]] || layout+=(--programs "$programs")
  "${layout[@]}" "$1"
}
