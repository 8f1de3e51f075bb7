#include "launcher/net/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <thread>
#include <vector>

#include "base/file_system.h"
#include "launcher/net/endpoint.h"
#include "tests/support/temp_dir.h"

namespace lockstep::launcher::net {
namespace {

using test_support::TempDir;

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(NetSecret, OneOfManyMakesTheFileAndAllReadTheSame) {
  TempDir folder;
  const auto path = folder / "control.secret";
  constexpr int kThreads = 8;
  std::vector<std::string> read(kThreads);
  std::vector<std::thread> threads;
  for (std::string& each : read)
    threads.emplace_back([&] {
      auto secret = Secret::of_file(path);
      each = secret ? secret->hex() : secret.error().message;
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(std::set(read.begin(), read.end()).size(), 1u);
  EXPECT_EQ(read[0].size(), 64u);
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(posix_file_system().list(folder.path()).value().size(), 1u);  // no temporary is left
}

TEST(NetSecret, AFileThatOthersMayOpenIsRefused) {
  TempDir folder;
  const auto path = folder / "control.secret";
  ASSERT_TRUE(Secret::of_file(path));
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    auto secret = Secret::of_file(path);
    ASSERT_FALSE(secret) << mode;
    EXPECT_EQ(secret.error().code, Code::kConfig);
    EXPECT_NE(secret.error().message.find("other users may open"), std::string::npos);
  }
}

TEST(NetSecret, LinksAndWrongWordsAreRefused) {
  TempDir folder;
  const auto path = folder / "control.secret", real = folder / "real";
  ASSERT_TRUE(Secret::of_file(real));
  ASSERT_EQ(::symlink(real.c_str(), path.c_str()), 0);
  EXPECT_FALSE(Secret::of_file(path));
  ASSERT_TRUE(publish_file(posix_file_system(), real, "0123\n").ok());
  ASSERT_EQ(::chmod(real.c_str(), 0600), 0);
  auto wrong = Secret::of_file(real);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("64 hexadecimal digits"), std::string::npos);
}

TEST(NetSecret, TheEnvironmentsComesFirstAndIsNotRepeatedInErrors) {
  TempDir folder;
  const std::string digits(64, 'c');
  auto given = Secret::of_job({{kSecretVariable, digits}}, folder.path());
  ASSERT_TRUE(given);
  EXPECT_EQ(given->hex(), digits);
  EXPECT_EQ(given->origin(), kSecretVariable);
  auto wrong = Secret::of_job({{kSecretVariable, "hunter2"}}, folder.path());
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find(kSecretVariable), std::string::npos);
  EXPECT_EQ(wrong.error().message.find("hunter2"), std::string::npos);
  auto made = Secret::of_job({}, folder.path());
  ASSERT_TRUE(made);
  EXPECT_EQ(made->origin(), (folder / "control.secret").string());
  EXPECT_EQ(made->hex(), Secret::of_job({}, folder.path())->hex());
  EXPECT_NE(made->hex(), Secret::generate().hex());
}

TEST(NetEndpoint, ReadsAndWritesHostAndPort) {
  for (const char* words : {"10.0.0.3:4711", "[fe80::1]:80", "node7:29400"}) {
    auto endpoint = parse_endpoint(words);
    ASSERT_TRUE(endpoint) << words;
    EXPECT_EQ(endpoint->str(), words);
  }
  for (const char* words : {"", ":80", "host", "host:", "host:99999", "host:8x", "fe80::1:80"})
    EXPECT_FALSE(parse_endpoint(words)) << words;
}

TEST(NetEndpoint, ChoosesTheAddressOfTheRoute) {
  auto local = choose_local_address("", Endpoint{"127.0.0.1", 1});
  ASSERT_TRUE(local);
  EXPECT_EQ(local->address, "127.0.0.1");
  EXPECT_EQ(local->interface, "lo");
  EXPECT_EQ(choose_local_address("lo", {})->address, "127.0.0.1");
  EXPECT_EQ(choose_local_address("127.0.0.1", {})->interface, "lo");
  EXPECT_TRUE(choose_local_address("", {}));
  auto wrong = choose_local_address("no-such-card0", {});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("lo=127.0.0.1"), std::string::npos);
  EXPECT_EQ(choose_local_address("", Endpoint{std::string(80, 'x'), 1}).error().code,
            Code::kNotFound);  // longer than a name may be: nobody is asked
}

}  // namespace
}  // namespace lockstep::launcher::net
